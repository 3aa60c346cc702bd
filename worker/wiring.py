"""Where the parts are put together: settings in, something that moves a dataset out.

Responsible for: building each process's own connections and catalogs, after the fork; the only module that knows every
part.
Must not know: Celery, what a move does.
"""

from __future__ import annotations

import gc
import os
import socket
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from worker.catalog_access import CatalogAccess, catalog_connection
from worker.controlplane.connection import ControlPlaneAwayError, ControlPlaneError
from worker.controlplane.ledger import PostgresControlPlane
from worker.controlplane.schema import require_migrated
from worker.identifiers import LEGACY_NAMESPACE
from worker.lakehouse.inspection import inspect_warehouse
from worker.lakehouse.lakehouse import OpenLakehouse, open_lakehouse, preload
from worker.lakehouse.port import CatalogError, ErrorCode
from worker.moves.attempt import Mover
from worker.moves.policy import Policy
from worker.moves.ports import Strategy
from worker.outcome import Park
from worker.settings import Settings, SettingsError, load_settings
from worker.telemetry import bind, log

if TYPE_CHECKING:
    from worker.identifiers import TableIdentifier
    from worker.inspection import Check
    from worker.lakehouse.port import Snapshot
    from worker.moves.ports import Claimed, Move
    from worker.outcome import Outcome

_WINDOW_REQUESTS: Final = 4
"""The rename and the look; the look may be sent again, or be preceded by one for a token or the configuration. What
comes after these asks the lock's connection first."""
_WINDOW_MARGIN: Final = 5.0
"""Seconds above these requests: how long a process that stands still may keep the flip's rows after a rename."""


class ObservedControlPlane(PostgresControlPlane):
    """The control plane, and every line that is logged says of which dataset, warehouse and attempt it speaks."""

    def peek(self, dataset_id: str) -> Move | None:
        """Bind the dataset, which is another than the message's where that one is urgent, then peek as ever."""
        bind(dataset_id=dataset_id)
        return super().peek(dataset_id)

    def claim(self, move: Move) -> Claimed | None:
        """Claim as ever, then bind what is known from then on."""
        claimed = super().claim(move)
        if claimed is not None:
            bind(warehouse=claimed.dataset.warehouse, attempt=claimed.move.attempts, claim=claimed.move.claim)
        return claimed


@dataclass(frozen=True, slots=True)
class Runtime:
    """What one process works with. Its connections open at first use and again after a loss."""

    settings: Settings
    controlplane: PostgresControlPlane
    lakehouse: OpenLakehouse
    mover: Mover

    def move(self, dataset_id: str) -> Outcome:
        """One attempt at a dataset. Raises ControlPlaneError: then the sweeper finds the job."""
        outcome = self.mover.attempt(dataset_id)
        log_end(outcome)
        return outcome

    def warm_up(self) -> None:
        """Open what can be opened before the first job, which would pay for it. What is away now is asked then."""
        try:
            self.controlplane.warm_up()
            if self.settings.warehouse is not None:
                self.lakehouse.catalog(self.settings.warehouse).namespace_exists((LEGACY_NAMESPACE,))
        except (ControlPlaneError, CatalogError) as error:
            log.warning("not everything is in reach yet", reason=str(error))

    def close(self) -> None:
        """Let every connection go."""
        self.controlplane.disconnect()
        self.lakehouse.close()


def log_end(outcome: Outcome) -> None:
    """Write how an attempt ended, with all that its outcome says."""
    said = {name: round(value, 1) if isinstance(value, float) else value for name, value in asdict(outcome).items()}
    level = log.warning if isinstance(outcome, Park) else log.info
    level("attempt ended", outcome=type(outcome).__name__.lower(), **said)


def build(settings: Settings, worker: str) -> Runtime:
    """Put the parts together; nothing is connected yet. Raises SettingsError with all that a worker needs and lacks."""
    complaints: list[str] = []
    for ask in (settings.database, settings.catalog):
        try:
            ask()
        except SettingsError as error:
            complaints.extend(error.complaints)
    if complaints:
        raise SettingsError(complaints)
    controlplane = ObservedControlPlane(
        settings.database(),
        worker=worker,
        warehouse_for=settings.warehouse_for,
        attempt_seconds=settings.move_deadline_seconds,
    )
    lakehouse = open_lakehouse(CatalogAccess(settings).connection)
    policy = Policy(
        grace_seconds=settings.grace_seconds,
        deadline_seconds=settings.move_deadline_seconds,
        strategy=None if settings.strategy == "auto" else Strategy(settings.strategy),
        window_seconds=_WINDOW_REQUESTS * settings.catalog_timeout_seconds + _WINDOW_MARGIN,
    )
    mover = Mover(controlplane, lakehouse, policy, ended=log_end)
    return Runtime(settings, controlplane, lakehouse, mover)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two names of a divergence, as the catalog shows it now."""

    identifier: TableIdentifier
    location: str
    rows: int | None
    snapshots: tuple[Snapshot, ...]


class CatalogSilentError(Exception):
    """The catalog could not say what an operator's command needs to know; one line."""


class NoTableError(Exception):
    """No table stands under one of the names, so that there is no second side any more; one line."""


def sides(settings: Settings, warehouse: str, *names: TableIdentifier) -> list[Side]:
    """What stands under these names, with its history. Raises NoTableError, CatalogSilentError, SettingsError."""
    catalog = open_lakehouse(CatalogAccess(settings).connection).catalog(warehouse)
    seen = []
    for name in names:
        try:
            table = catalog.load(name)
            seen.append(Side(name, table.metadata_location, table.row_count, catalog.snapshots(table)))
        except CatalogError as error:
            if error.code is ErrorCode.TABLE_MISSING:
                raise NoTableError(f"no table stands under {name}") from error
            raise CatalogSilentError(str(error)) from error
    return seen


def inspect(settings: Settings, warehouse: str, *, probe: bool) -> list[Check]:
    """What an inspection of one warehouse finds; with ``probe`` on a scratch table too. Raises SettingsError."""
    return inspect_warehouse(CatalogAccess(settings).connection(warehouse), warehouse, probe=probe)


class Runtimes:
    """Each process's, and each thread's, own runtime: neither connections nor catalogs survive a fork or are shared."""

    def __init__(self) -> None:
        self._own = threading.local()
        self.worker = socket.gethostname()
        """The worker's name, as the ledger notes it."""
        self.parent = os.getpid()
        """The worker's main process."""

    def get(self) -> Runtime:
        """This thread's runtime, built at first use and after a fork. Raises SettingsError."""
        if getattr(self._own, "pid", None) != os.getpid():
            self._own.runtime = build(load_settings(), self.worker)
            self._own.pid = os.getpid()
        runtime: Runtime = self._own.runtime
        return runtime

    def prepare(self) -> None:
        """In the parent, before it forks: refuse what would fail every job, and import what jobs need.

        Raises SettingsError, NotMigratedError.
        """
        settings = self.get().settings
        try:
            require_migrated(settings.database())
        except ControlPlaneAwayError as error:
            log.warning("not everything is in reach yet", reason=str(error))
        preload(catalog_connection(settings))
        # A collection in a child writes to every object it visits, and so copies what was shared.
        gc.collect()
        gc.freeze()

    def discard(self) -> None:
        """Let this thread's runtime go, after something interrupted it at an unknown point."""
        if getattr(self._own, "pid", None) == os.getpid():
            self._own.runtime.close()
        self._own.pid = None


runtimes: Final = Runtimes()
