"""What the migrations add, refuse, mend and take away again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.other_programs import Session, rows, session, value
from worker.controlplane import migrate
from worker.controlplane.connection import ControlPlaneAwayError
from worker.controlplane.migrate import downgrade, upgrade
from worker.controlplane.migrations.steps import MigrationRefusedError, here

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.every_postgres


@pytest.fixture
def given(empty_database: str) -> Iterator[Session]:
    """A session on a database that has the given tables and nothing of ours."""
    with session(empty_database) as connection:
        connection.execute(here("baseline.sql").read_bytes())
        yield connection


def _shape(connection: Session) -> list[tuple[object, ...]]:
    """Everything in the schema ``public``: columns, constraints, indexes, triggers."""
    return rows(
        connection,
        "SELECT 'column', attrelid::regclass::text, attname::text, format_type(atttypid, atttypmod), attnotnull::text"
        " FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid WHERE relnamespace = 'public'::regnamespace"
        " AND attnum > 0 AND NOT attisdropped AND relkind = 'r'"
        " UNION ALL SELECT 'constraint', conrelid::regclass::text, conname::text, pg_get_constraintdef(oid), ''"
        " FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
        " UNION ALL SELECT 'index', tablename, indexname, indexdef, '' FROM pg_indexes WHERE schemaname = 'public'"
        " UNION ALL SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid), '' FROM pg_trigger"
        " WHERE NOT tgisinternal ORDER BY 1, 2, 3, 4",
    )


def test_a_database_without_the_given_tables_is_refused_in_one_line(empty_database: str) -> None:
    with pytest.raises(MigrationRefusedError) as refusal:
        upgrade(empty_database)
    assert "has no workspaces, catalogs, schemas, datasets, iceberg_sync_log" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    with session(empty_database) as connection:
        assert value(connection, "SELECT to_regnamespace('reroot') IS NULL")


def test_a_baseline_is_never_mixed_into_tables_that_are_there(empty_database: str) -> None:
    with session(empty_database) as connection:
        connection.execute("CREATE TABLE datasets (id uuid)")
        with pytest.raises(MigrationRefusedError, match="only some"):
            upgrade(empty_database, with_baseline=True)
        assert value(connection, "SELECT to_regclass('catalogs') IS NULL")


def test_a_given_table_that_lacks_a_column_is_refused(given: Session, empty_database: str) -> None:
    given.execute("ALTER TABLE iceberg_sync_log DROP COLUMN row_count")
    with pytest.raises(MigrationRefusedError, match="iceberg_sync_log has no column row_count"):
        upgrade(empty_database)


def test_what_is_added_to_the_given_tables_is_additive(given: Session, empty_database: str) -> None:
    before = _shape(given)
    upgrade(empty_database)
    after = _shape(given)
    assert set(before) <= set(after)
    added = [row[:3] + row[4:] for row in after if row not in before and row[0] == "column"]
    assert added == [
        ("column", "catalogs", "slug", "false"),
        ("column", "datasets", "iceberg_namespace", "false"),
        ("column", "schemas", "slug", "false"),
    ]
    assert not rows(
        given,
        "SELECT 1 FROM pg_attrdef d JOIN pg_attribute a ON (a.attrelid, a.attnum) = (d.adrelid, d.adnum)"
        " WHERE attname IN ('slug', 'iceberg_namespace')",
    )


def test_everything_else_lies_in_the_schema_reroot(given: Session, empty_database: str) -> None:
    upgrade(empty_database)
    assert {
        row[0] for row in rows(given, "SELECT relname FROM pg_class WHERE relnamespace = 'reroot'::regnamespace")
    } >= {
        "alembic_version",
        "moves",
        "move_events",
        "pointers",
        "warehouses",
        "tenants",
        "workers",
        "due",
    }
    assert not rows(given, "SELECT 1 FROM pg_proc WHERE pronamespace = 'public'::regnamespace")
    assert value(given, "SELECT count(*) FROM pg_class WHERE relname = 'alembic_version'") == 1


def test_upgrading_again_changes_nothing(given: Session, empty_database: str) -> None:
    upgrade(empty_database)
    before = _shape(given)
    upgrade(empty_database)
    assert _shape(given) == before
    assert migrate.current(empty_database) == migrate.head()
    assert migrate.check(empty_database) == []


def test_a_migration_that_ended_before_its_revision_was_noted_is_run_again(given: Session, empty_database: str) -> None:
    upgrade(empty_database)
    before = _shape(given)
    given.execute("DELETE FROM reroot.alembic_version")
    assert migrate.check(empty_database)
    upgrade(empty_database)
    assert _shape(given) == before
    assert migrate.check(empty_database) == []


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ("DROP INDEX reroot_catalogs_slug", "index reroot_catalogs_slug of catalogs is missing"),
        ("DROP INDEX reroot_sync_log_dataset", "no index of iceberg_sync_log begins with dataset_id"),
        ("ALTER TABLE schemas DROP CONSTRAINT reroot_slug_shape", "check reroot_slug_shape of schemas is missing"),
        ("DROP TRIGGER zz_reroot_give_slug ON catalogs", "trigger zz_reroot_give_slug of catalogs is missing"),
    ],
)
def test_damage_is_named_by_check_and_mended_by_upgrade(database: str, damage: str, complaint: str) -> None:
    with session(database) as connection:
        connection.execute(damage.encode())
    assert [line[: len(complaint)] for line in migrate.check(database)] == [complaint]
    upgrade(database)
    assert migrate.check(database) == []


def test_a_disabled_trigger_is_named_and_left_to_whoever_disabled_it(database: str) -> None:
    with session(database) as connection:
        connection.execute("ALTER TABLE catalogs DISABLE TRIGGER zz_reroot_give_slug")
    assert migrate.check(database) == [
        "trigger zz_reroot_give_slug of catalogs is disabled: ALTER TABLE catalogs ENABLE TRIGGER zz_reroot_give_slug"
    ]


def test_an_index_that_fits_already_is_enough(given: Session, empty_database: str) -> None:
    given.execute("CREATE INDEX theirs ON iceberg_sync_log (dataset_id, started_at)")
    upgrade(empty_database)
    assert not rows(given, "SELECT 1 FROM pg_indexes WHERE indexname = 'reroot_sync_log_dataset'")
    assert migrate.check(empty_database) == []


def test_an_index_of_theirs_that_holds_other_rows_only_is_not_enough(given: Session, empty_database: str) -> None:
    given.execute("CREATE INDEX theirs ON iceberg_sync_log (dataset_id) WHERE status = 'failed'")
    upgrade(empty_database)
    assert rows(given, "SELECT 1 FROM pg_indexes WHERE indexname = 'reroot_sync_log_dataset'")


@pytest.mark.parametrize("namespace", ["", ".", "a..b", "a.", "reroot_withdrawn", "reroot_withdrawn.a"])
def test_a_namespace_that_is_no_place_is_refused(given: Session, empty_database: str, namespace: str) -> None:
    upgrade(empty_database)
    with pytest.raises(psycopg.errors.CheckViolation):
        _place(given, namespace)


@pytest.mark.parametrize("namespace", ["sales.europe", "datasets", "Other Tool", "reroot_withdrawn_2.a"])
def test_any_other_namespace_is_accepted(given: Session, empty_database: str, namespace: str) -> None:
    upgrade(empty_database)
    _place(given, namespace)


def _place(connection: Session, namespace: str | None) -> None:
    connection.execute(
        "INSERT INTO datasets (workspace_id, name, iceberg_namespace) VALUES (gen_random_uuid(), 'x', %s)", (namespace,)
    )


def test_downgrade_removes_ours_and_leaves_theirs(given: Session, empty_database: str) -> None:
    before = _shape(given)
    given.execute("INSERT INTO catalogs (workspace_id, name) VALUES (gen_random_uuid(), 'Sales')")
    upgrade(empty_database)
    downgrade(empty_database)
    assert _shape(given) == before
    assert value(given, "SELECT to_regnamespace('reroot') IS NULL")
    assert rows(given, "SELECT name FROM catalogs") == [("Sales",)]
    given.execute("INSERT INTO catalogs (workspace_id, name) VALUES (gen_random_uuid(), 'Later')")
    upgrade(empty_database)
    assert rows(given, "SELECT slug FROM catalogs ORDER BY 1") == [("later",), ("sales",)]


def test_downgrade_is_refused_while_a_table_has_a_place(given: Session, empty_database: str) -> None:
    upgrade(empty_database)
    _place(given, "sales.europe")
    before = _shape(given)
    with pytest.raises(MigrationRefusedError, match="1 datasets have an iceberg_namespace"):
        downgrade(empty_database)
    assert _shape(given) == before
    assert migrate.check(empty_database) == []


def test_downgrade_is_refused_while_a_pointer_of_ours_is_open(given: Session, empty_database: str) -> None:
    upgrade(empty_database)
    given.execute(
        "INSERT INTO reroot.pointers (dataset_id, claim, action, namespace, table_name, warehouse, table_uuid,"
        " metadata_location, sequence_number) VALUES ('d', 1, 'register', 'a.b', 't', 'w', 'u', 'file:/m', 1)"
    )
    with pytest.raises(MigrationRefusedError, match="1 open pointers"):
        downgrade(empty_database)
    assert migrate.check(empty_database) == []
    assert value(given, "SELECT count(*) FROM reroot.pointers") == 1


def test_downgrade_does_not_drop_what_another_program_has_built_on_ours(given: Session, empty_database: str) -> None:
    upgrade(empty_database)
    given.execute("CREATE VIEW theirs AS SELECT count(*) FROM reroot.due")
    with pytest.raises(MigrationRefusedError, match="depend"):
        downgrade(empty_database)
    assert value(given, "SELECT count(*) FROM theirs") == 1
    given.execute("DROP VIEW theirs")
    upgrade(empty_database)
    assert migrate.check(empty_database) == []


def test_downgrading_what_was_never_upgraded_says_so(given: Session, empty_database: str) -> None:
    with pytest.raises(MigrationRefusedError, match="nothing of Reroot's"):
        downgrade(empty_database)
    assert _shape(given)


def test_a_database_of_a_newer_version_is_left_alone(database: str) -> None:
    with session(database) as connection:
        connection.execute("UPDATE reroot.alembic_version SET version_num = '9999'")
        for change in (upgrade, downgrade):
            with pytest.raises(MigrationRefusedError, match="9999, which is newer"):
                change(database)
        assert rows(connection, "SELECT version_num FROM reroot.alembic_version") == [("9999",)]


def test_an_encoding_that_cannot_hold_every_name_is_refused(empty_database: str) -> None:
    with session(empty_database) as connection:
        connection.execute("CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        try:
            with pytest.raises(MigrationRefusedError, match="must be UTF8, this one's is LATIN1"):
                upgrade(empty_database.rpartition("/")[0] + "/latin", with_baseline=True)
        finally:
            connection.execute("DROP DATABASE latin")


def test_postgres_out_of_reach_is_told_apart_from_a_refusal() -> None:
    for call in (upgrade, downgrade, migrate.current, migrate.check):
        with pytest.raises(ControlPlaneAwayError, match="port 1"):
            call("postgresql://app@127.0.0.1:1/none")
