"""A stage for tests of the protocol: real ledger and lock, a catalog double, and somebody who makes time pass.

``Stage`` arranges datasets whose tables are simulated in the double, runs attempts on them as a worker does, and
plays the other programs: writers that respect the lock and engines that do not.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

from tests.support.catalog_double import Call, CatalogDouble, LakehouseDouble
from tests.support.controlplane import ControlPlaneFixture, legacy_identifier
from worker.controlplane.ledger import PostgresControlPlane
from worker.identifiers import LEGACY_NAMESPACE, TableIdentifier
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind
from worker.moves.attempt import Mover
from worker.moves.machine import TRANSITIONS
from worker.moves.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.outcome import Outcome

WAREHOUSE = "w"


@dataclass(frozen=True)
class Subject:
    """A dataset with its table."""

    id: str
    workspace: str
    schema: str
    old: TableIdentifier
    new: TableIdentifier
    uuid: str


@dataclass
class Stage:
    """One database, one warehouse."""

    url: str
    control_plane: ControlPlaneFixture
    policy: Policy = field(default_factory=lambda: Policy(jitter=lambda: 0.5))
    lakehouse: LakehouseDouble = field(default_factory=LakehouseDouble)

    def __post_init__(self) -> None:
        self._adapters: list[PostgresControlPlane] = []
        self.mover = self.new_mover()

    @property
    def catalog(self) -> CatalogDouble:
        """The warehouse's double."""
        return self.lakehouse.catalog(WAREHOUSE)

    def new_mover(self, name: str = "worker-1") -> Mover:
        """What another worker process has: connections of its own."""
        adapter = PostgresControlPlane(
            self.url, worker=name, warehouse_for=lambda _: WAREHOUSE, attempt_seconds=self.policy.deadline_seconds
        )
        self._adapters.append(adapter)
        return Mover(adapter, self.lakehouse, self.policy)

    def close(self) -> None:
        """Close every connection; whatever the test did, only legal transitions were written."""
        for adapter in self._adapters:
            adapter.disconnect()
        written = self.execute(
            "SELECT transition, from_state, to_state FROM reroot.move_events WHERE transition <> 'a'"
        )
        legal = {(t.letter, t.source and t.source.value, t.target and t.target.value) for t in TRANSITIONS}
        assert set(written) <= legal, set(written) - legal

    def subject(self, *, catalog: str = "Sales", schema: str = "Europe", queued: bool = True) -> Subject:
        """A dataset with a table of ten rows in the legacy namespace, and its log row; queued in the ledger."""
        plane = self.control_plane
        workspace = plane.workspace()
        schema_id = plane.schema(plane.catalog(workspace, catalog), schema)
        dataset = plane.dataset(workspace, schema_id)
        name = legacy_identifier(dataset).removeprefix(LEGACY_NAMESPACE + ".")
        old = TableIdentifier((LEGACY_NAMESPACE,), name)
        self.catalog.create(old)
        table = self.catalog.load(old)
        self.catalog.calls.clear()
        plane.log(dataset, iceberg_table=str(old), snapshot_id=table.snapshot_id, row_count=table.row_count)
        place = plane.place(schema_id)
        subject = Subject(dataset, workspace, schema_id, old, TableIdentifier.within(place, name), table.uuid)
        if queued:
            self.queue(subject)
        return subject

    def queue(self, subject: Subject) -> None:
        """The producer's row."""
        self.execute(
            "INSERT INTO reroot.moves (dataset_id, workspace_id, source_identifier, table_name, target_namespace)"
            " VALUES (%s, %s, %s, %s, %s)",
            (subject.id, subject.workspace, str(subject.old), subject.old.name, ".".join(subject.new.namespace)),
        )

    def attempt(self, subject: Subject) -> Outcome:
        """One attempt, by the first worker."""
        return self.mover.attempt(subject.id)

    def pass_time(self, subject: Subject) -> None:
        """Let the time come that the row waits for: a pause, or the grace."""
        self.execute("UPDATE reroot.moves SET not_before = now() WHERE dataset_id = %s", (subject.id,))

    def finish(self, subject: Subject, *, attempts: int = 12) -> str:
        """Attempt until nothing is left to do, as the sweeper would have it; the state at the end."""
        for _ in range(attempts):
            if self.row(subject)["state"] in {"done", "parked"}:
                break
            self.pass_time(subject)
            self.attempt(subject)
        return str(self.row(subject)["state"])

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """SQL of the test's own."""
        return self.control_plane.execute(statement, parameters)

    def row(self, subject: Subject) -> dict[str, Any]:
        """The ledger's row."""
        with psycopg.connect(self.url, row_factory=psycopg.rows.dict_row) as connection:
            found = connection.execute("SELECT * FROM reroot.moves WHERE dataset_id = %s", (subject.id,)).fetchone()
        assert found is not None
        return found

    def parked(self, subject: Subject) -> str:
        """The code of a job that is parked, and says why and what helps."""
        row = self.row(subject)
        assert row["state"] == "parked"
        assert row["park_text"]
        assert row["park_remedy"]
        return str(row["park_code"])

    def methods(self) -> list[str]:
        """The calls of the catalog's port so far."""
        return [call.method for call in self.catalog.calls]

    def everything(self) -> list[Any]:
        """All that Reroot has written, to compare before and after."""
        return [
            self.execute(f"SELECT * FROM reroot.{table} ORDER BY 1") for table in ("moves", "move_events", "pointers")
        ]

    def open_entries(self, subject: Subject) -> list[Any]:
        """Actions of open journal entries."""
        return self.execute(
            "SELECT action FROM reroot.pointers WHERE dataset_id = %s AND closed_at IS NULL ORDER BY id", (subject.id,)
        )

    def live(self, subject: Subject) -> TableIdentifier:
        """What the resolver says."""
        namespace = self.control_plane.iceberg_namespace(subject.id) or LEGACY_NAMESPACE
        return TableIdentifier.within(namespace, subject.old.name)

    def pointers(self, subject: Subject) -> set[TableIdentifier]:
        """Every name in the catalog that holds the dataset's table, quarantine included."""
        return {
            name
            for name, location in self.catalog.names.items()
            if location in self.catalog.files and self.catalog.files[location].uuid == subject.uuid
        }

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection]:
        """Another program's transaction; it ends without a trace."""
        with psycopg.connect(self.url) as connection:
            yield connection
            connection.rollback()

    @contextmanager
    def writing(self, subject: Subject) -> Iterator[psycopg.Connection]:
        """A program of the control plane that holds the dataset's lock, in a transaction of its own."""
        with psycopg.connect(self.url) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (subject.id,))
            yield connection

    @contextmanager
    def when(self, method: str, action: Callable[[], object], *, nth: int = 1, after: bool = False) -> Iterator[None]:
        """Run ``action`` once, just before (or after) the n-th call of ``method`` takes effect."""
        seen = 0
        catalog = self.catalog
        kept = catalog.before, catalog.after

        def hook(call: Call) -> None:
            nonlocal seen
            kept[after](call)
            if call.method == method:
                seen += 1
                if seen == nth:
                    action()

        if after:
            catalog.after = hook
        else:
            catalog.before = hook
        try:
            yield
        finally:
            catalog.before, catalog.after = kept
        assert seen >= nth, f"{method} was called {seen} times, not {nth}"


def unclear(text: str = "the connection broke") -> CatalogError:
    """An answer that says nothing about what was done."""
    return CatalogError(ErrorCode.UNCLEAR, ErrorKind.UNKNOWN, text)


def raising(error: BaseException) -> None:
    """Fail as the catalog, or the machine, does."""
    raise error
