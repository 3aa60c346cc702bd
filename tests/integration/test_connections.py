"""Connections that an attempt uses again and again: prepared where that is safe, and healed by themselves."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from worker.controlplane.connection import Connection, connect
from worker.controlplane.ledger import PostgresControlPlane

if TYPE_CHECKING:
    from tests.support.controlplane import ControlPlaneFixture

OFTEN = 8
"""More uses than it takes until a statement is prepared."""


def prepared(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert row is not None
    return int(row[0])


def test_a_statement_that_is_used_often_is_prepared(database: str) -> None:
    with closing(connect(database, role="test", prepare=True)) as connection:
        for _ in range(OFTEN):
            connection.execute("SELECT 1")
        assert prepared(connection) > 0


def test_behind_a_pooler_nothing_is_prepared(pooled_database: str) -> None:
    with closing(connect(pooled_database, role="test", prepare=True)) as connection:
        for _ in range(OFTEN):
            connection.execute("SELECT 1")
        assert prepared(connection) == 0


def test_a_column_that_changes_its_type_under_a_prepared_statement_is_read_anew(
    database: str, control_plane: ControlPlaneFixture
) -> None:
    workspace = control_plane.workspace()
    dataset = control_plane.dataset(workspace, None)
    control_plane.execute(
        "INSERT INTO reroot.moves (dataset_id, workspace_id, source_identifier, table_name, target_namespace)"
        " VALUES (%s, %s, 'datasets.t', 't', 'a.b')",
        (dataset, workspace),
    )
    plane = PostgresControlPlane(database, worker="w", warehouse_for=lambda _: "w", attempt_seconds=60)
    try:
        for _ in range(OFTEN):
            assert plane.peek(dataset) is not None
        control_plane.execute("ALTER TABLE reroot.moves ALTER COLUMN table_name TYPE varchar(500)")
        move = plane.peek(dataset)
        assert move is not None
        assert move.table_name == "t"
    finally:
        plane.disconnect()
