"""What the flip waits for, and who waits for the flip: tables and rows that other programs hold.

No test waits for a clock: a wait is seen in ``pg_locks``, and a bound is what the lock's connection says of itself.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from demo.processes import wait_until
from tests.support.plane_on_postgres import PostgresSubject
from tests.support.plane_story import NEW, OLD, claimed_by, flip_to, flipped
from worker.moves.ports import Claimed, Written
from worker.outcome import Busy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.controlplane import ControlPlaneFixture
    from tests.support.stage import Stage
    from worker.moves.ports import Lock

pytestmark = [pytest.mark.every_postgres, pytest.mark.timeout(60)]

TABLES = ["datasets", "iceberg_sync_log"]
MODES = ["ACCESS EXCLUSIVE", "SHARE"]
"""``ALTER TABLE``; ``CREATE INDEX``."""
WRITES = [("flip", table, mode) for table in TABLES for mode in MODES]
WRITES += [("finish", "iceberg_sync_log", mode) for mode in MODES]


@pytest.fixture
def plane(database: str, control_plane: ControlPlaneFixture) -> Iterator[PostgresSubject]:
    subject = PostgresSubject(database, control_plane)
    yield subject
    subject.close()


def write(lock: Lock, claimed: Claimed, what: str) -> Written | None:
    match what:
        case "reserve":
            return lock.reserve(claimed, flip_to(), idle_seconds=15)
        case "flip":
            return lock.flip(claimed, flip_to())
        case _:
            return lock.finish(claimed, NEW, OLD)


@pytest.mark.parametrize("queue_for", [None, 2.0])
def test_the_locks_connection_never_waits_without_a_bound(plane: PostgresSubject, queue_for: float | None) -> None:
    dataset = plane.dataset()
    with plane.adapter().lock(dataset, queue_for=queue_for) as lock:
        assert lock is not None
        shown: Any = lock._connection.execute("SELECT setting::int, unit FROM pg_settings WHERE name = 'lock_timeout'")  # type: ignore[attr-defined]
        [(timeout, unit)] = shown
        assert (0 < timeout < 1000, unit) == (True, "ms")


@pytest.mark.parametrize(("what", "table", "mode"), WRITES)
def test_a_table_that_another_program_holds_makes_it_busy(
    plane: PostgresSubject, database: str, what: str, table: str, mode: str
) -> None:
    adapter, dataset = plane.adapter(), plane.dataset()
    if what == "finish":
        flipped(plane, dataset)
    with adapter.lock(dataset, queue_for=None) as lock, psycopg.connect(database) as other:
        assert lock is not None
        claimed = claimed_by(adapter, dataset)
        other.execute(f"LOCK TABLE {table} IN {mode} MODE".encode())
        assert write(lock, claimed, what) is Written.ROWS_BUSY
        other.rollback()
        assert write(lock, claimed, what) is Written.COMMITTED


def test_a_table_that_another_program_holds_makes_any_attempt_busy(stage: Stage) -> None:
    subject = stage.subject()
    stage.attempt(subject)
    stage.pass_time(subject)
    with psycopg.connect(stage.url) as other:
        with stage.when("load", lambda: other.execute("LOCK TABLE datasets")):
            assert isinstance(stage.attempt(subject), Busy)  # it asks what the resolver says before it withdraws
        stage.pass_time(subject)
        assert isinstance(stage.attempt(subject), Busy)  # at the claim
        assert stage.row(subject)["attempts"] == 0
        other.rollback()
    assert stage.finish(subject) == "done"


@pytest.mark.parametrize("table", TABLES)
def test_a_program_that_changes_a_table_and_waits_for_our_lock_survives(
    plane: PostgresSubject, database: str, table: str
) -> None:
    adapter, dataset = plane.adapter(), plane.dataset()
    taken: list[object] = []
    with psycopg.connect(database) as other:

        def take_the_lock() -> None:
            try:
                taken.append(other.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (dataset,)).fetchone())
            except psycopg.Error as error:
                taken.append(error)

        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed = claimed_by(adapter, dataset)
            other.execute(f"ALTER TABLE {table} ADD COLUMN extra int".encode())
            waiting = threading.Thread(target=take_the_lock)
            waiting.start()
            wait_until(lambda: _waits_for_an_advisory_lock(database), seconds=20, what="it waits for our lock")
            for what in ("reserve", "flip"):
                assert write(lock, claimed, what) is Written.ROWS_BUSY
        waiting.join(timeout=20)
        assert taken == [("",)]
        other.rollback()


def _waits_for_an_advisory_lock(database: str) -> bool:
    with psycopg.connect(database) as connection:
        query = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
        return bool((connection.execute(query).fetchone() or [False])[0])


def test_rows_that_refer_to_ours_can_be_inserted_while_the_flip_holds_them(
    plane: PostgresSubject, database: str
) -> None:
    adapter, dataset = plane.adapter(), plane.dataset()
    with psycopg.connect(database, autocommit=True) as other:
        key: Any = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = %s::regclass"
        for table in TABLES:
            [(kind,)] = other.execute(key + " AND attname = 'id'", (table,))
            other.execute(f"CREATE TABLE child_of_{table} (of {kind} REFERENCES {table} (id))".encode())
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            assert lock.reserve(claimed_by(adapter, dataset), flip_to(), idle_seconds=15) is None
            other.execute("SET lock_timeout = '500ms'")
            other.execute("INSERT INTO child_of_datasets SELECT id FROM datasets WHERE id::text = %s", (dataset,))
            other.execute(
                "INSERT INTO child_of_iceberg_sync_log SELECT id FROM iceberg_sync_log WHERE dataset_id::text = %s",
                (dataset,),
            )
