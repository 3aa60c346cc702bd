"""Connections that an attempt uses again and again: prepared where that is safe, and healed by themselves."""

from __future__ import annotations

import traceback
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from worker.controlplane.connection import AddressRefusedError, Connection, ControlPlaneAwayError, connect
from worker.controlplane.ledger import PostgresControlPlane
from worker.moves.ports import LockLostError
from worker.outcome import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.mark.parametrize(
    "rest", ["app:s3cret%zz@h/db", "app:a s3cret@h/db", "h/db?s3cret", "h/db?pasword=s3cret", "app:s3cret%ff@h/db"]
)
def test_an_address_that_libpq_refuses_is_not_quoted(rest: str) -> None:
    with pytest.raises(AddressRefusedError) as caught:
        connect(f"postgresql://{rest}", role="test")
    shown = "".join(traceback.format_exception(caught.value))
    assert "percent-encode the password" in shown
    assert "s3cret" not in shown


@pytest.fixture
def plane(database: str) -> Iterator[PostgresControlPlane]:
    plane = PostgresControlPlane(database, worker="w", warehouse_for=lambda _: "w", attempt_seconds=60)
    yield plane
    plane.disconnect()


def planned(control_plane: ControlPlaneFixture) -> str:
    """A dataset with a move that waits."""
    workspace = control_plane.workspace()
    dataset = control_plane.dataset(workspace, None)
    control_plane.execute(
        "INSERT INTO reroot.moves (dataset_id, workspace_id, source_identifier, table_name, target_namespace)"
        " VALUES (%s, %s, 'datasets.t', 't', 'a.b')",
        (dataset, workspace),
    )
    return dataset


def take_writes(control_plane: ControlPlaneFixture, database: str, *, yes: bool) -> None:
    """What connections that are opened from now on may do: as after a failover, the open ones stay as they are."""
    name, value = urlsplit(database).path.removeprefix("/"), "off" if yes else "on"
    control_plane.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}")


def test_a_claim_on_a_server_that_takes_no_writes_is_made_on_another_connection(
    database: str, control_plane: ControlPlaneFixture, plane: PostgresControlPlane
) -> None:
    dataset = planned(control_plane)
    take_writes(control_plane, database, yes=False)
    move = plane.peek(dataset)
    assert move is not None
    with pytest.raises(ControlPlaneAwayError, match="read-only"):
        plane.claim(move)
    take_writes(control_plane, database, yes=True)
    assert plane.claim(move) is not None


def test_a_lock_on_a_server_that_takes_no_writes_is_lost_and_the_next_one_is_not(
    database: str, control_plane: ControlPlaneFixture, plane: PostgresControlPlane
) -> None:
    dataset = planned(control_plane)
    move = plane.peek(dataset)
    assert move is not None
    claimed = plane.claim(move)
    assert claimed is not None
    take_writes(control_plane, database, yes=False)
    with plane.lock(dataset, queue_for=None) as lock:
        assert lock is not None
        with pytest.raises(LockLostError, match="read-only"):
            lock.end(claimed, Retry(1, "why"))
    take_writes(control_plane, database, yes=True)
    with plane.lock(dataset, queue_for=None) as lock:
        assert lock is not None
        assert lock.end(claimed, Retry(1, "why"))


def test_a_column_that_changes_its_type_under_a_prepared_statement_is_read_anew(
    control_plane: ControlPlaneFixture, plane: PostgresControlPlane
) -> None:
    dataset = planned(control_plane)
    for _ in range(OFTEN):
        assert plane.peek(dataset) is not None
    control_plane.execute("ALTER TABLE reroot.moves ALTER COLUMN table_name TYPE varchar(500)")
    move = plane.peek(dataset)
    assert move is not None
    assert move.table_name == "t"


def test_a_lock_is_never_taken_where_the_ledger_is_not_any_more(
    database: str, control_plane: ControlPlaneFixture
) -> None:
    """Both connections lead to one server: when one was lost, neither is used again."""
    plane = PostgresControlPlane(database, worker="w", warehouse_for=lambda _: "w", attempt_seconds=60)
    here = "datname = current_database() AND application_name"
    try:
        plane.warm_up()
        before = control_plane.execute(f"SELECT pid FROM pg_stat_activity WHERE {here} = 'reroot-lock'")
        control_plane.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {here} = 'reroot-ledger'")
        assert plane.peek("nobody") is None
        with plane.lock("d", queue_for=None) as lock:
            assert lock is not None
            held = control_plane.execute(
                "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        assert len(held) == 1
        assert held != before
    finally:
        plane.disconnect()
