"""Migrations of a database that others are using: nobody fails, nobody is stuck, and what was cut off goes on."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from demo.processes import wait_until
from tests.support.other_programs import Session, in_background, meanwhile, rows, session, value
from worker.controlplane import migrate
from worker.controlplane.connection import ControlPlaneAwayError
from worker.controlplane.migrate import upgrade
from worker.controlplane.migrations.steps import MigrationRefusedError, Patience, here

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.every_postgres

BRIEF: Final = Patience(lock_seconds=0.2, index_seconds=0.5, tries=300, pause_seconds=0.05, batch=10)
SHORT: Final = Patience(lock_seconds=0.1, index_seconds=0.1, tries=2, pause_seconds=0.01, batch=10)

ADD_CATALOG: Final = "INSERT INTO catalogs (workspace_id, name) VALUES ('00000000-0000-0000-0000-000000000001', %s)"


@pytest.fixture
def given(empty_database: str) -> Iterator[Session]:
    """A session on a database that has the given tables, 45 catalogs of one name, and nothing of ours."""
    with session(empty_database) as connection:
        connection.execute(here("baseline.sql").read_bytes())
        for _ in range(45):
            connection.execute(ADD_CATALOG.encode(), ("Sales",))
        yield connection


class Heard(list[str]):
    """What an upgrade says, to be waited for."""

    def until(self, word: str) -> None:
        """Wait until a line has been said that holds ``word``."""
        wait_until(lambda: any(word in line for line in self), seconds=30, what=f"the upgrade says '{word}'")


def test_programs_read_and_write_while_it_runs_and_every_row_ends_with_its_own_slug(
    given: Session, empty_database: str
) -> None:
    numbers = itertools.count()

    def write_and_read() -> None:
        with writer.transaction():
            writer.execute(ADD_CATALOG.encode(), (f"Sales {next(numbers) % 3}",))
            writer.execute(ADD_CATALOG.encode(), ("Sales",))
        writer.execute("UPDATE catalogs SET name = name WHERE ctid IN (SELECT ctid FROM catalogs LIMIT 3)")
        rows(writer, "SELECT id, name FROM catalogs")

    with session(empty_database) as writer, meanwhile(write_and_read):
        upgrade(empty_database, patience=BRIEF)
    assert migrate.check(empty_database) == []
    slugs = [slug for (slug,) in rows(given, "SELECT slug FROM catalogs")]
    assert len(slugs) > 45
    assert None not in slugs
    assert len(set(slugs)) == len(slugs)


@pytest.mark.parametrize("table", ["catalogs", "schemas", "datasets"])
def test_behind_a_long_transaction_it_comes_back_and_others_are_not_stuck_behind_it(
    given: Session, empty_database: str, table: str
) -> None:
    heard = Heard()
    with session(empty_database, autocommit=False) as reader, session(empty_database, name="others") as others:
        reader.execute(f"SELECT count(*) FROM {table}".encode())
        running = in_background(lambda: upgrade(empty_database, patience=BRIEF, say=heard.append))
        heard.until(f"public.{table} is locked by process {reader.info.backend_pid} (another program")
        # An upgrade that queues without end would hold these up for as long as the reader lives.
        for _ in range(3):
            heard.clear()
            heard.until("is locked")
            rows(others, f"SELECT * FROM {table} LIMIT 1")
            others.execute(f"DELETE FROM {table} WHERE false".encode())
        assert not running.done()
        reader.rollback()
        running.result(timeout=60)
    assert migrate.check(empty_database) == []


def test_it_gives_up_in_one_line_and_the_next_run_goes_on(given: Session, empty_database: str) -> None:
    with session(empty_database, autocommit=False) as reader:
        reader.execute("SELECT count(*) FROM datasets")
        with pytest.raises(MigrationRefusedError) as refusal:
            upgrade(empty_database, patience=SHORT)
        assert f"public.datasets stays locked by process {reader.info.backend_pid}" in str(refusal.value)
        assert "\n" not in str(refusal.value)
    assert migrate.current(empty_database) == "0002"
    assert migrate.check(empty_database)
    upgrade(empty_database, patience=SHORT)
    assert migrate.check(empty_database) == []


@pytest.mark.parametrize(
    ("index", "statement"),
    [
        ("reroot_catalogs_slug", "CREATE UNIQUE INDEX CONCURRENTLY reroot_catalogs_slug ON catalogs (name)"),
        (
            "reroot_sync_log_dataset",
            "CREATE INDEX CONCURRENTLY reroot_sync_log_dataset ON iceberg_sync_log (dataset_id)",
        ),
    ],
)
def test_an_invalid_index_of_a_broken_run_is_built_again(
    given: Session, empty_database: str, index: str, statement: str
) -> None:
    validity = f"SELECT indisvalid FROM pg_index WHERE indexrelid = '{index}'::regclass"
    with session(empty_database, autocommit=False) as writer:
        writer.execute(ADD_CATALOG.encode(), ("In flight",))
        writer.execute(
            "INSERT INTO iceberg_sync_log (dataset_id, mode, status) VALUES (gen_random_uuid(), 'sync.full', 'running')"
        )
        given.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            given.execute(statement.encode())
    assert value(given, validity) is False
    upgrade(empty_database, patience=BRIEF)
    assert value(given, validity) is True
    assert migrate.check(empty_database) == []


def test_an_index_waits_for_older_transactions_while_others_write(given: Session, empty_database: str) -> None:
    given.execute("CREATE TABLE theirs (id integer)")
    heard = Heard()
    with session(empty_database, autocommit=False) as old, session(empty_database) as others:
        # A snapshot that is older than the build, without a lock on any table that is migrated.
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1 FROM theirs")
        running = in_background(lambda: upgrade(empty_database, patience=BRIEF, say=heard.append))
        heard.until("is locked by another transaction")
        for _ in range(3):
            others.execute(ADD_CATALOG.encode(), ("Sales",))
        assert not running.done()
        old.rollback()
        running.result(timeout=60)
    assert migrate.check(empty_database) == []
    assert value(given, "SELECT count(*) FROM catalogs WHERE slug IS NULL") == 0


def test_a_backfill_that_is_cut_off_goes_on_where_it_was(given: Session, empty_database: str) -> None:
    def cut(line: str) -> None:
        if "20 so far" in line:
            given.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'reroot-migrate' AND datname = current_database()"
            )

    with pytest.raises(ControlPlaneAwayError):
        upgrade(empty_database, patience=BRIEF, say=cut)
    done = set(rows(given, "SELECT id, slug FROM catalogs WHERE slug IS NOT NULL"))
    assert len(done) == 20
    upgrade(empty_database, patience=BRIEF)
    ended = set(rows(given, "SELECT id, slug FROM catalogs"))
    assert done < ended
    assert {slug for _, slug in ended} == {"sales"} | {f"sales_{n}" for n in range(2, 46)}


def test_a_backfill_comes_back_to_rows_that_somebody_holds(given: Session, empty_database: str) -> None:
    heard = Heard()

    def hear(line: str) -> None:
        heard.append(line)
        if "catalogs: 10 so far" in line:
            holder.execute("SELECT 1 FROM catalogs WHERE slug IS NULL ORDER BY id DESC LIMIT 1 FOR UPDATE")

    with session(empty_database, autocommit=False) as holder:
        running = in_background(lambda: upgrade(empty_database, patience=BRIEF, say=hear))
        heard.until("public.catalogs is locked by process")
        assert not running.done()
        assert value(given, "SELECT count(*) FROM catalogs WHERE slug IS NULL") == 1
        holder.rollback()
        running.result(timeout=60)
    assert value(given, "SELECT count(*) FROM catalogs WHERE slug IS NULL") == 0


def test_children_are_inserted_while_a_slug_is_given_to_their_parent(given: Session, empty_database: str) -> None:
    given.execute("ALTER TABLE schemas ADD FOREIGN KEY (catalog_id) REFERENCES catalogs (id)")
    upgrade(empty_database, patience=BRIEF)
    parent = value(given, "SELECT id FROM catalogs LIMIT 1")
    given.execute("ALTER TABLE catalogs DISABLE TRIGGER zz_reroot_keep_slug")
    with session(empty_database, autocommit=False) as child:
        child.execute("INSERT INTO schemas (catalog_id, name) VALUES (%s, 'Europe')", (parent,))
        given.execute("SET lock_timeout = '100ms'")
        given.execute("UPDATE catalogs SET slug = 'given_meanwhile' WHERE id = %s", (parent,))


def test_two_at_once_both_end_well(given: Session, empty_database: str) -> None:
    heard = Heard()
    with session(empty_database, autocommit=False) as reader:
        reader.execute("SELECT count(*) FROM catalogs")
        first = in_background(lambda: upgrade(empty_database, patience=BRIEF, say=heard.append))
        heard.until("is locked")
        second = in_background(lambda: upgrade(empty_database, patience=BRIEF, say=heard.append))
        heard.until("another migration of this database is running")
        reader.rollback()
    first.result(timeout=60)
    second.result(timeout=60)
    assert migrate.check(empty_database) == []
    assert value(given, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
