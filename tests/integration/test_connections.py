"""Connections that an attempt uses again and again: prepared where that is safe, and healed by themselves."""

from __future__ import annotations

import traceback
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest

from worker.controlplane.connection import AddressRefusedError, Connection, ControlPlaneAwayError, connect
from worker.controlplane.ledger import PostgresControlPlane
from worker.identifiers import TableIdentifier
from worker.moves.ports import Action, LockLostError, Pointer
from worker.outcome import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


@pytest.fixture(params=["database", "pooled_database"])
def given_defaults(
    request: pytest.FixtureRequest, database: str, control_plane: ControlPlaneFixture
) -> Callable[..., PostgresControlPlane]:
    """A control plane, direct or behind a pooler, on a database with these defaults."""

    def made(**defaults: str) -> PostgresControlPlane:
        name = urlsplit(database).path.removeprefix("/")
        for setting, value in defaults.items():
            control_plane.execute(f"ALTER DATABASE {name} SET {setting} = '{value}'")
        url: str = request.getfixturevalue(request.param)
        plane = PostgresControlPlane(url, worker="w", warehouse_for=lambda _: "w", attempt_seconds=60)
        request.addfinalizer(plane.disconnect)
        return plane

    return made


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_an_attempt_ends_whatever_isolation_the_database_has_as_a_default(
    given_defaults: Callable[..., PostgresControlPlane], control_plane: ControlPlaneFixture, isolation: str
) -> None:
    """The lock comes before the claim, on another connection: a snapshot from then never shows the claim."""
    plane, dataset = given_defaults(default_transaction_isolation=isolation), planned(control_plane)
    move = plane.peek(dataset)
    assert move is not None
    with plane.lock(dataset, queue_for=None) as lock:
        assert lock is not None
        claimed = plane.claim(move)
        assert claimed is not None
        assert lock.end(claimed, Retry(1, "why"))


def test_a_claim_notes_the_backend_that_holds_the_lock(
    given_defaults: Callable[..., PostgresControlPlane], control_plane: ControlPlaneFixture
) -> None:
    """A pooler tells its clients another number, and the second connection has another backend."""
    plane, dataset = given_defaults(), planned(control_plane)
    held = (
        "SELECT l.pid = m.lock_pid FROM pg_locks l, reroot.moves m"
        " WHERE l.locktype = 'advisory' AND l.objid::bigint::bit(32) = hashtext(m.dataset_id)::bit(32)"
    )
    for queue_for in (None, 0.4):
        move = plane.peek(dataset)
        assert move is not None
        with plane.lock(dataset, queue_for=queue_for) as lock:
            assert lock is not None
            claimed = plane.claim(move)
            assert claimed is not None
            assert control_plane.execute(held) == [(True,)]
            assert lock.end(claimed, Retry(0, "why"))


def test_a_queue_for_the_lock_that_is_long_for_the_database_ends_as_busy(
    given_defaults: Callable[..., PostgresControlPlane], control_plane: ControlPlaneFixture, database: str
) -> None:
    plane, dataset = given_defaults(statement_timeout="100ms", lock_timeout="50ms"), planned(control_plane)
    with psycopg.connect(database) as writer:
        writer.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (dataset,))
        with plane.lock(dataset, queue_for=0.4) as lock:
            assert lock is None
    with plane.lock(dataset, queue_for=0.4) as lock:
        assert lock is not None


def test_the_transaction_of_a_lock_sets_what_it_needs(
    given_defaults: Callable[..., PostgresControlPlane], control_plane: ControlPlaneFixture
) -> None:
    plane = given_defaults(statement_timeout="1s", synchronous_commit="off")
    with plane.lock(planned(control_plane), queue_for=None) as lock:
        assert lock is not None
        asked = "SELECT current_setting('statement_timeout'), current_setting('synchronous_commit')"
        seen = lock._connection.execute(asked).fetchone()
        assert seen == ("90s", "on")


def test_the_commit_of_a_journal_entry_waits_for_the_disk(
    given_defaults: Callable[..., PostgresControlPlane], control_plane: ControlPlaneFixture
) -> None:
    plane, dataset = given_defaults(synchronous_commit="off"), planned(control_plane)
    control_plane.execute("CREATE TABLE at_commit (setting text)")
    control_plane.execute(
        "CREATE FUNCTION note_setting() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN INSERT INTO at_commit VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$"
    )
    control_plane.execute(
        "CREATE CONSTRAINT TRIGGER note_setting AFTER INSERT ON reroot.pointers DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION note_setting()"
    )
    move = plane.peek(dataset)
    assert move is not None
    claimed = plane.claim(move)
    assert claimed is not None
    plane.journal(claimed, Action.REGISTER, Pointer(TableIdentifier(("a", "b"), "t"), "u", "m", 1))
    assert control_plane.execute("SELECT setting FROM at_commit") == [("on",)]


def test_a_session_sets_what_it_needs(database: str, control_plane: ControlPlaneFixture) -> None:
    name = urlsplit(database).path.removeprefix("/")
    for default in ("statement_timeout = 50", "idle_session_timeout = 50", "synchronous_commit = off"):
        control_plane.execute(f"ALTER DATABASE {name} SET {default}")
    with closing(connect(database, role="test", statement_seconds=30)) as connection:
        for setting, value in (
            ("default_transaction_isolation", "read committed"),
            ("statement_timeout", "30s"),
            ("lock_timeout", "5s"),
            ("idle_session_timeout", "0"),
            ("synchronous_commit", "on"),
        ):
            assert connection.execute(f"SHOW {setting}".encode()).fetchone() == (value,)


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
    control_plane.execute("ALTER TABLE reroot.moves ALTER COLUMN given_up TYPE varchar(500)")
    move = plane.peek(dataset)
    assert move is not None
    assert move.given_up is None


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
