"""Whole moves on the real reference REST server: every request counted, and each of them lost once."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from tests.support.catalog_fixtures import RestServers, rest_servers
from tests.support.controlplane import ControlPlaneFixture, legacy_identifier
from tests.support.lossy_wire import Loss, LossyWire
from tests.support.tables import append, count_rows, make_table, pyiceberg_catalog_for
from worker.controlplane.ledger import PostgresControlPlane
from worker.identifiers import LEGACY_NAMESPACE, QUARANTINE_NAMESPACE, TableIdentifier
from worker.lakehouse.connection import CatalogConnection, CatalogType
from worker.lakehouse.lakehouse import open_lakehouse
from worker.moves.attempt import Mover
from worker.moves.policy import Policy
from worker.outcome import Busy, Done, Ignored, Retry, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyiceberg.catalog import Catalog as PyIcebergCatalog

    from tests.support.rest_server import RestServer
    from worker.lakehouse.port import Catalog
    from worker.outcome import Outcome

__all__ = ["rest_servers"]

WAREHOUSE = "w_1"
OLDER, NEWER = "1.10.1", "1.11.0"
on_every_version = pytest.mark.parametrize("version", [OLDER, NEWER], indirect=True)
CLEAN_MOVE = 8
"""Requests: look, register, look, look again; later look, rename into quarantine, look, drop."""


@dataclass(frozen=True)
class Subject:
    """A dataset with its table."""

    id: str
    old: TableIdentifier
    new: TableIdentifier
    uuid: str
    folder: Path


class Lake:
    """A control plane and a REST catalog, with workers between them."""

    def __init__(self, database: str, plane: ControlPlaneFixture, server: RestServer, wire: LossyWire) -> None:
        self.database = database
        self.plane = plane
        self.wire = wire
        self.writer: PyIcebergCatalog = pyiceberg_catalog_for(server.connection(), WAREHOUSE)
        self._connection = CatalogConnection(CatalogType.REST, SecretStr(wire.uri), timeout_seconds=10)
        self._opened: list[Any] = []
        self._warehouse = server.warehouse

    def close(self) -> None:
        self.writer.close()
        for close in self._opened:
            close()

    def worker(self, name: str = "worker-1") -> Mover:
        """What one worker process has."""
        plane = PostgresControlPlane(self.database, worker=name, warehouse_for=lambda _: WAREHOUSE, attempt_seconds=60)
        lakehouse = open_lakehouse(self._connection)
        self._opened += [plane.disconnect, lakehouse.close]
        return Mover(plane, lakehouse, Policy(jitter=lambda: 0.5))

    def catalog(self) -> Catalog:
        """A client of the test's own, which the wire does not count: it asks the server itself."""
        lakehouse = open_lakehouse(self._connection)
        self._opened.append(lakehouse.close)
        return lakehouse.catalog(WAREHOUSE)

    def subject(self) -> Subject:
        """A dataset with a real table of thirty rows in the legacy namespace; queued in the ledger."""
        workspace = self.plane.workspace()
        schema = self.plane.schema(self.plane.catalog(workspace, f"Lake {workspace[:8]}"), "Europe")
        dataset = self.plane.dataset(workspace, schema)
        old = TableIdentifier.within(LEGACY_NAMESPACE, legacy_identifier(dataset).removeprefix(LEGACY_NAMESPACE + "."))
        table = make_table(self.writer, old, rows=10, snapshots=3)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        self.plane.log(dataset, iceberg_table=str(old), snapshot_id=snapshot.snapshot_id, row_count=30)
        new = TableIdentifier.within(self.plane.place(schema), old.name)
        self.plane.execute(
            "INSERT INTO reroot.moves (dataset_id, workspace_id, source_identifier, table_name, target_namespace)"
            " VALUES (%s, %s, %s, %s, %s)",
            (dataset, workspace, str(old), old.name, ".".join(new.namespace)),
        )
        folder = self._warehouse / LEGACY_NAMESPACE / old.name
        assert folder.is_dir()
        return Subject(dataset, old, new, str(table.metadata.table_uuid), folder)

    def pass_time(self, subject: Subject) -> None:
        """Let the time come that the row waits for."""
        self.plane.execute("UPDATE reroot.moves SET not_before = now() WHERE dataset_id = %s", (subject.id,))

    def state(self, subject: Subject) -> str:
        [[state]] = self.plane.execute("SELECT state FROM reroot.moves WHERE dataset_id = %s", (subject.id,))
        return str(state)

    def finish(self, subject: Subject, worker: Mover, *, attempts: int = 12) -> list[Outcome]:
        """Attempt until nothing is left to do, as the sweeper would have it; how each ended."""
        ends: list[Outcome] = []
        while self.state(subject) not in {"done", "parked"} and len(ends) < attempts:
            self.pass_time(subject)
            ends.append(worker.attempt(subject.id))
        return ends

    def names(self, subject: Subject) -> set[TableIdentifier]:
        """Every name of the subject's table, wherever it stands."""
        found = set()
        for namespace in (subject.old.namespace, subject.new.namespace, (QUARANTINE_NAMESPACE,)):
            if self.writer.namespace_exists(namespace):
                for name in self.writer.list_tables(namespace):
                    # Other tests' tables stand on this server too; in quarantine the name is longer.
                    if not name[-1].startswith(subject.old.name):
                        continue
                    if str(self.writer.load_table(name).metadata.table_uuid) == subject.uuid:
                        found.add(TableIdentifier(tuple(name[:-1]), name[-1]))
        return found


@pytest.fixture
def version(request: pytest.FixtureRequest) -> str:
    """The server's version, where a test does not name several."""
    return getattr(request, "param", OLDER)


@pytest.fixture
def lake(database: str, control_plane: ControlPlaneFixture, rest_servers: RestServers, version: str) -> Iterator[Lake]:
    server = rest_servers.running(version, "postgres")
    with LossyWire(server.uri) as wire:
        opened = Lake(database, control_plane, server, wire)
        yield opened
        opened.close()


def fingerprints(folder: Path) -> dict[str, str]:
    """Every file of a table, and what is in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def warm(lake: Lake, worker: Mover) -> None:
    """Have this worker move something else first, so that what is asked once per process is asked."""
    lake.finish(lake.subject(), worker)
    lake.wire.requests.clear()
    lake.wire.all_requests.clear()


@on_every_version
def test_a_clean_move_is_eight_requests_and_touches_no_file(lake: Lake) -> None:
    worker = lake.worker()
    warm(lake, worker)
    subject = lake.subject()
    files = fingerprints(subject.folder)

    ends = lake.finish(subject, worker)

    assert ends == [Done("flipped"), Done("done")]
    assert len(lake.wire.requests) == CLEAN_MOVE, lake.wire.requests
    assert [request.split()[0] for request in lake.wire.requests] == [
        "GET", "POST", "GET", "GET",
        "GET", "POST", "GET", "DELETE",
    ]  # fmt: skip
    # Beside them only the namespace that is this dataset's own, and its parents.
    assert len(lake.wire.all_requests) - len(lake.wire.requests) <= 2 * len(subject.new.namespace)
    assert lake.wire.requests[-1].endswith("?purgeRequested=false")
    assert lake.names(subject) == {subject.new}
    assert fingerprints(subject.folder) == files
    assert count_rows(lake.writer, subject.new) == 30
    assert lake.plane.logged_identifiers(subject.id) == [str(subject.new)]
    assert lake.plane.iceberg_namespace(subject.id) == ".".join(subject.new.namespace)


@pytest.mark.parametrize(
    ("version", "when"), [(OLDER, "before"), (OLDER, "after"), (OLDER, "503"), (NEWER, "after")], indirect=["version"]
)
@pytest.mark.parametrize("number", range(1, CLEAN_MOVE + 1))
def test_any_request_may_be_lost(lake: Lake, number: int, when: str) -> None:
    worker = lake.worker()
    subject = lake.subject()
    files = fingerprints(subject.folder)
    lake.wire.requests.clear()
    lake.wire.loss = Loss(number, when)

    ends = lake.finish(subject, worker)

    assert lake.wire.loss.happened
    assert lake.state(subject) == "done", ends
    assert lake.names(subject) == {subject.new}
    assert fingerprints(subject.folder) == files
    assert count_rows(lake.writer, subject.new) == 30
    assert lake.plane.execute("SELECT count(*) FROM reroot.pointers WHERE closed_at IS NULL") == [(0,)]


@on_every_version
def test_ten_workers_at_one_dataset(lake: Lake) -> None:
    subject = lake.subject()
    workers = [lake.worker(f"worker-{number}") for number in range(10)]
    with ThreadPoolExecutor(len(workers)) as pool:
        ends = list(pool.map(lambda worker: worker.attempt(subject.id), workers))
    assert ends.count(Done("flipped")) == 1
    assert all(isinstance(end, (Busy, Ignored, Done)) for end in ends)
    assert lake.names(subject) == {subject.old, subject.new}
    lake.finish(subject, workers[0])
    assert lake.state(subject) == "done"
    assert lake.names(subject) == {subject.new}


@on_every_version
def test_an_engine_without_the_lock_that_commits_to_the_old_name_after_the_flip_is_not_lost(lake: Lake) -> None:
    worker = lake.worker()
    subject = lake.subject()
    assert worker.attempt(subject.id) == Done("flipped")
    append(lake.writer, subject.old, rows=5)
    lake.finish(subject, worker)
    assert lake.state(subject) == "parked"
    assert count_rows(lake.writer, subject.old) == 35
    assert count_rows(lake.writer, subject.new) == 30


@on_every_version
def test_a_metadata_file_that_is_cleaned_up_during_the_grace_does_not_stop_the_withdrawal(lake: Lake) -> None:
    worker = lake.worker()
    subject = lake.subject()
    assert worker.attempt(subject.id) == Done("flipped")
    registered = lake.catalog().load(subject.old).metadata_location
    append(lake.writer, subject.new, rows=5)
    (subject.folder / "metadata" / registered.rpartition("/")[2]).unlink()
    lake.finish(subject, worker)
    assert lake.state(subject) == "done"
    assert lake.names(subject) == {subject.new}
    assert count_rows(lake.writer, subject.new) == 35


def test_a_catalog_that_is_away_costs_no_attempt(lake: Lake) -> None:
    worker = lake.worker()
    warm(lake, worker)
    subject = lake.subject()
    lake.wire.down = True
    for _ in range(3):
        lake.pass_time(subject)
        lake.plane.execute("DELETE FROM reroot.warehouses")
        assert isinstance(worker.attempt(subject.id), Wait)
    lake.wire.down = False
    lake.plane.execute("DELETE FROM reroot.warehouses")
    assert lake.finish(subject, worker) == [Done("flipped"), Done("done")]


def test_a_table_that_cannot_be_soaked_is_not_flipped_and_its_neighbour_is(lake: Lake) -> None:
    worker = lake.worker()
    broken, whole = lake.subject(), lake.subject()
    for path in (broken.folder / "data").rglob("*.parquet"):
        path.write_bytes(b"PAR1 no more")
    end = worker.attempt(broken.id)
    assert isinstance(end, Retry)
    assert "cannot be read" in end.why
    assert lake.plane.iceberg_namespace(broken.id) is None
    assert lake.finish(whole, worker) == [Done("flipped"), Done("done")]
