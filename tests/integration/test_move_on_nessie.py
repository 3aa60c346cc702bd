"""Whole moves on a real Nessie, its tables in an object store: it shows no history, and that must be enough."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.controlplane import ControlPlaneFixture, legacy_identifier
from tests.support.nessie import WAREHOUSE, Nessie
from tests.support.object_store import ObjectStore
from tests.support.tables import append, count_rows, make_table, pyiceberg_catalog_for
from worker.controlplane.ledger import PostgresControlPlane
from worker.identifiers import LEGACY_NAMESPACE, TableIdentifier
from worker.lakehouse.lakehouse import open_lakehouse
from worker.moves.attempt import Mover
from worker.moves.policy import Policy
from worker.moves.ports import Strategy
from worker.outcome import Done

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.outcome import Outcome


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="module")
def nessie(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nessie]:
    with Nessie(tmp_path_factory.mktemp("nessie"), store) as running:
        yield running


class Lake:
    """A dataset with a table of thirty rows, queued, and a worker."""

    def __init__(self, nessie: Nessie, database: str, plane: ControlPlaneFixture, leaving: ExitStack) -> None:
        self.plane = plane
        self.writer = pyiceberg_catalog_for(nessie.connection(), WAREHOUSE)
        leaving.callback(self.writer.close)
        workspace = plane.workspace()
        schema = plane.schema(plane.catalog(workspace, f"Lake {workspace[:8]}"), "Europe")
        self.id = plane.dataset(workspace, schema)
        name = legacy_identifier(self.id).removeprefix(LEGACY_NAMESPACE + ".")
        self.old = TableIdentifier.within(LEGACY_NAMESPACE, name)
        self.new = TableIdentifier.within(plane.place(schema), name)
        snapshot = make_table(self.writer, self.old, rows=10, snapshots=3).current_snapshot()
        assert snapshot is not None
        plane.log(self.id, iceberg_table=str(self.old), snapshot_id=snapshot.snapshot_id, row_count=30)
        plane.execute(
            "INSERT INTO reroot.moves (dataset_id, workspace_id, source_identifier, table_name, target_namespace)"
            " VALUES (%s, %s, %s, %s, %s)",
            (self.id, workspace, str(self.old), name, plane.place(schema)),
        )
        ledger = PostgresControlPlane(database, worker="w", warehouse_for=lambda _: WAREHOUSE, attempt_seconds=60)
        lakehouse = open_lakehouse(nessie.connection())
        leaving.callback(ledger.disconnect)
        leaving.callback(lakehouse.close)
        self.mover = Mover(ledger, lakehouse, Policy(jitter=lambda: 0.5))

    def attempt(self) -> Outcome:
        self.plane.execute("UPDATE reroot.moves SET not_before = now() WHERE dataset_id = %s", (self.id,))
        return self.mover.attempt(self.id)

    def state(self) -> str:
        [[state]] = self.plane.execute("SELECT state FROM reroot.moves WHERE dataset_id = %s", (self.id,))
        return str(state)

    def names(self) -> set[str]:
        """Under which of its two names the table stands."""
        return {str(name) for name in (self.old, self.new) if self.writer.table_exists((*name.namespace, name.name))}


@pytest.fixture
def lake(database: str, control_plane: ControlPlaneFixture, nessie: Nessie) -> Iterator[Lake]:
    with ExitStack() as leaving:
        yield Lake(nessie, database, control_plane, leaving)


def test_a_clean_move_touches_no_file(lake: Lake, store: ObjectStore) -> None:
    files = store.objects()
    assert [lake.attempt(), lake.attempt()] == [Done("flipped"), Done("done")]
    assert lake.names() == {str(lake.new)}
    assert store.objects() == files
    assert count_rows(lake.writer, lake.new) == 30
    assert lake.plane.logged_identifiers(lake.id) == [str(lake.new)]


def test_a_move_by_rename(lake: Lake, store: ObjectStore) -> None:
    files = store.objects()
    lake.mover = replace(lake.mover, policy=replace(lake.mover.policy, strategy=Strategy.RENAME))
    assert lake.attempt() == Done("done")
    assert lake.names() == {str(lake.new)}
    assert store.objects() == files
    assert count_rows(lake.writer, lake.new) == 30


def test_commits_under_the_new_name_do_not_stop_the_withdrawal(lake: Lake) -> None:
    assert lake.attempt() == Done("flipped")
    for _ in range(2):
        append(lake.writer, lake.new, rows=5)
    assert lake.attempt() == Done("done")
    assert lake.names() == {str(lake.new)}
    assert count_rows(lake.writer, lake.new) == 40


def test_a_commit_under_the_old_name_after_the_flip_is_not_lost(lake: Lake) -> None:
    assert lake.attempt() == Done("flipped")
    append(lake.writer, lake.old, rows=5)
    lake.attempt()
    assert lake.state() == "parked"
    assert count_rows(lake.writer, lake.old) == 35
    assert count_rows(lake.writer, lake.new) == 30
