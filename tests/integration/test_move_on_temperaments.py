"""Whole moves on every temperament that a server may have: real tables, the real client, the real ledger.

A move that ends ``done`` leaves one name, every file and every row; where a server forbids it, the dataset is parked
with the reason and its table stands where it stood.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from tests.support.controlplane import ControlPlaneFixture, legacy_identifier
from tests.support.fault_proxy import FaultProxy, Rule, hang_up, lie, refuse, twice
from tests.support.nightly import NIGHTLY
from tests.support.rest_double import TEMPERAMENTS, Kind, RestDouble
from tests.support.tables import append, make_table, pyiceberg_catalog_for
from worker.controlplane import reversal
from worker.controlplane.connection import connect
from worker.controlplane.ledger import PostgresControlPlane
from worker.identifiers import LEGACY_NAMESPACE, QUARANTINE_NAMESPACE, TableIdentifier
from worker.lakehouse.connection import CatalogAuth, CatalogConnection, CatalogType
from worker.lakehouse.lakehouse import open_lakehouse
from worker.moves.attempt import Mover
from worker.moves.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.fault_proxy import Fault

WAREHOUSE = "w"
MOVES_BY = {
    "correct": "register",
    "gravitino-1.2": "register",
    "gravitino-1.2-authorization": "register",
    "gravitino-1.3": "register",
    "gravitino-1.3-authorization": "register",
    "lakekeeper-0.13.3": "rename",
    "lakekeeper-main": "rename",
    "polaris": "rename",
}
"""What ``auto`` ends with on two datasets. Polaris refuses a second name outside of the namespace's own location."""


@dataclass(frozen=True)
class Subject:
    """A dataset with its table."""

    id: str
    old: TableIdentifier
    new: TableIdentifier
    uuid: str
    files: dict[str, str]


class Lake:
    """A control plane and a catalog with a temperament, with a proxy between it and the workers."""

    def __init__(
        self,
        database: str,
        plane: ControlPlaneFixture,
        double: RestDouble,
        proxy: FaultProxy,
        folder: Path,
        *,
        user: str | None = None,
    ) -> None:
        self.database = database
        self.plane = plane
        self.folder = folder
        self.double = double
        double.make_warehouse(WAREHOUSE, f"file://{folder}")
        self.proxy = proxy
        direct = CatalogConnection(CatalogType.REST, SecretStr(double.uri))
        self.writer = pyiceberg_catalog_for(direct, WAREHOUSE)
        self._plane = PostgresControlPlane(database, worker="w1", warehouse_for=lambda _: WAREHOUSE, attempt_seconds=60)
        self._lakehouse = open_lakehouse(_connection(self.proxy.uri, user))
        self.mover = Mover(self._plane, self._lakehouse, Policy(jitter=lambda: 0.5))
        self.workspace = plane.workspace()
        self.schema = plane.schema(plane.catalog(self.workspace))

    def close(self) -> None:
        """Close everything that was opened; the double itself has seen no defect of its own."""
        self._plane.disconnect()
        self._lakehouse.close()
        self.writer.close()
        assert self.double.failures == []

    def subject(self, called: str | None = None) -> Subject:
        """A queued dataset with a real table of twenty rows."""
        dataset = self.plane.dataset(self.workspace, self.schema)
        name = f"{LEGACY_NAMESPACE}.{called}" if called else legacy_identifier(dataset)
        old = TableIdentifier.within(LEGACY_NAMESPACE, name.removeprefix(LEGACY_NAMESPACE + "."))
        table = make_table(self.writer, old, rows=10, snapshots=2)
        place = self.plane.place(self.schema)
        self.plane.log(dataset, iceberg_table=name, snapshot_id=table.metadata.current_snapshot_id, row_count=20)
        self.plane.execute(
            "INSERT INTO reroot.moves (dataset_id, workspace_id, source_identifier, table_name, target_namespace)"
            " VALUES (%s, %s, %s, %s, %s)",
            (dataset, self.workspace, name, old.name, place),
        )
        files = self.files(table.location())
        return Subject(dataset, old, TableIdentifier.within(place, old.name), str(table.metadata.table_uuid), files)

    def files(self, location: str) -> dict[str, str]:
        """The files below a table's location, with their contents' hashes."""
        from pathlib import Path  # noqa: PLC0415 - a value here, a type elsewhere

        root = Path(location.removeprefix("file://").removeprefix("file:"))
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in root.rglob("*") if file.is_file()}

    def finish(self, subject: Subject, *, attempts: int = 14) -> str:
        """Attempt until nothing is left to do, as the sweepers would; purges of the server run in between."""
        for _ in range(attempts):
            if self.row(subject)[0] in {"done", "parked"}:
                break
            self.plane.execute("UPDATE reroot.moves SET not_before = now(), resolver_changed_at = '2000-01-01'")
            self.plane.execute("UPDATE reroot.warehouses SET down_until = NULL")
            self.mover.attempt(subject.id)
            self.double.run_tasks()
        return str(self.row(subject)[0])

    def row(self, subject: Subject) -> tuple[Any, ...]:
        """State, park code and text."""
        found: tuple[Any, ...] = self.plane.execute(
            "SELECT state, park_code, park_text FROM reroot.moves WHERE dataset_id = %s", (subject.id,)
        )[0]
        return found

    def names(self, subject: Subject) -> set[TableIdentifier]:
        """Every name of the subject's table, by loads and not by listings, which some flatten."""
        quarantined = self.plane.execute(
            "SELECT id FROM reroot.pointers WHERE dataset_id = %s AND action = 'withdraw'", (subject.id,)
        )
        shelters = [TableIdentifier((QUARANTINE_NAMESPACE,), f"{subject.old.name}__{row[0]}") for row in quarantined]
        return {name for name in (subject.old, subject.new, *shelters) if self._uuid(name) == subject.uuid}

    def _uuid(self, name: TableIdentifier) -> str | None:
        try:
            return str(self.writer.load_table((*name.namespace, name.name)).metadata.table_uuid)
        except Exception:  # noqa: BLE001 - however this server says that it is not there
            return None

    def strategy(self) -> str | None:
        """What was found out."""
        found = self.plane.execute("SELECT strategy FROM reroot.warehouses WHERE warehouse = %s", (WAREHOUSE,))
        return found[0][0] if found else None

    def check_whole(self, subject: Subject, at: TableIdentifier, rows: int = 20) -> None:
        """One name, every file, every row, and a control plane that says so."""
        assert self.names(subject) == {at}
        table = self.writer.load_table((*at.namespace, at.name))
        assert table.scan().to_arrow().num_rows == rows
        assert subject.files.items() <= self.files(table.location()).items()
        assert set(self.plane.logged_identifiers(subject.id)) == {str(at)}
        assert self.plane.execute("SELECT reroot.table_identifier(%s::uuid)", (subject.id,)) == [(str(at),)]


def _connection(uri: str, user: str | None) -> CatalogConnection:
    if user is None:
        return CatalogConnection(CatalogType.REST, SecretStr(uri))
    secret = SecretStr("secret")
    return CatalogConnection(CatalogType.REST, SecretStr(uri), auth=CatalogAuth.BASIC, user=user, password=secret)


@pytest.fixture(params=sorted(TEMPERAMENTS))
def lake(
    request: pytest.FixtureRequest, database: str, control_plane: ControlPlaneFixture, tmp_path: Path
) -> Iterator[Lake]:
    with RestDouble(TEMPERAMENTS[request.param]) as double, FaultProxy(double.uri) as proxy:
        lake = Lake(database, control_plane, double, proxy, tmp_path / "warehouse")
        yield lake
        lake.close()


def test_auto_finds_the_way_and_moves(lake: Lake) -> None:
    for subject in [lake.subject() for _ in range(3)]:
        assert lake.finish(subject) == "done", lake.row(subject)
        lake.check_whole(subject, subject.new)
    assert lake.strategy() == MOVES_BY[lake.double.temperament.name]


MANY = 500 if NIGHTLY else 20
KEEP_ONE_NAME = ["lakekeeper-0.13.3", "lakekeeper-main"]
SAYS_NO_AND_DOES_IT = ["gravitino-1.2-authorization"]


def move_many(lake: Lake) -> None:
    """Every one ends ``done``, whole where that is looked at, and nothing was purged."""
    subjects = [lake.subject() for _ in range(MANY)]
    for subject in subjects:
        assert lake.finish(subject) == "done", lake.row(subject)
    assert lake.double.warehouse(WAREHOUSE).purged == []
    for subject in subjects[:: MANY // 20]:
        lake.check_whole(subject, subject.new)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("lake", KEEP_ONE_NAME, indirect=True)
def test_many_are_renamed_and_nothing_is_ever_dropped(lake: Lake) -> None:
    """A drop purges there unless it is told not to, and two names for one table cannot be had."""
    move_many(lake)
    assert lake.strategy() == "rename"
    assert lake.proxy.requests[Kind.RENAME] == MANY
    assert lake.proxy.requests[Kind.REGISTER] == 2  # two refusals tell
    assert lake.proxy.requests[Kind.DROP] == 0


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("lake", SAYS_NO_AND_DOES_IT, indirect=True)
def test_many_are_registered_although_every_registration_answers_500(lake: Lake) -> None:
    move_many(lake)
    assert lake.strategy() == "register"
    assert lake.proxy.answers[Kind.REGISTER, 500] == lake.proxy.requests[Kind.REGISTER] == MANY


def test_there_and_back(lake: Lake) -> None:
    subject = lake.subject()
    assert lake.finish(subject) == "done", lake.row(subject)
    append(lake.writer, subject.new, rows=5)
    with connect(lake.database, role="test") as connection:
        assert reversal.revert_datasets(connection, [subject.id]) == [subject.id]
    assert lake.finish(subject) == "done", lake.row(subject)
    lake.check_whole(subject, subject.old, rows=25)


CHANGES = (Kind.CREATE_NAMESPACE, Kind.REGISTER, Kind.RENAME, Kind.DROP)
FAULTS: dict[str, Fault] = {
    "500 before": refuse(500),
    "500 after": refuse(500, after=True),
    "503 after": refuse(503, after=True),
    "broken before": hang_up(),
    "broken after": hang_up(after=True),
    "false 409": lie(409),
    "false 404": lie(404),
    "sent twice": twice(),
}


OFTEN = {"500 after", "broken before", "false 404"}
"""The faults that every run plays, on one server of each kind; a nightly run plays all of them on all."""
OF_EACH_KIND = {"correct", "gravitino-1.2-authorization", "lakekeeper-0.13.3"}


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if NIGHTLY or fault in OFTEN])
@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("lake", sorted(TEMPERAMENTS if NIGHTLY else OF_EACH_KIND), indirect=True)
def test_each_change_is_spoilt_once(lake: Lake, kind: Kind, fault: str) -> None:
    """Whatever a server or a proxy does to one request, the table ends whole under one name."""
    subject = lake.subject()
    lake.proxy.add(Rule(kind, FAULTS[fault], times=1))
    state = lake.finish(subject)
    names = lake.names(subject)
    if state == "done":
        lake.check_whole(subject, subject.new)
    else:
        assert state == "parked", lake.row(subject)
        live = lake.plane.execute("SELECT reroot.table_identifier(%s::uuid)", (subject.id,))[0][0]
        assert live in {str(name) for name in names}, lake.row(subject)
        assert lake.row(subject)[1] in {"name_taken", "refused"}, lake.row(subject)
