"""Other programs' roles, which know nothing of the schema reroot, after our migration."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tests.support.other_programs import Session, rows, session, value
from worker.controlplane import migrate
from worker.controlplane.migrate import upgrade
from worker.controlplane.migrations.steps import here

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.every_postgres

_numbers = itertools.count(1)
WORKSPACE: Final = "00000000-0000-0000-0000-000000000001"


@pytest.fixture
def owner(empty_database: str) -> Iterator[str]:
    """The URL of the role that owns the given tables and migrates: no superuser."""
    yield from _role(empty_database, "owner")


@pytest.fixture
def stranger(empty_database: str) -> Iterator[str]:
    """The URL of a role that owns nothing."""
    yield from _role(empty_database, "stranger")


def _role(database: str, kind: str) -> Iterator[str]:
    name = f"{kind}_{next(_numbers)}"
    with session(database) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'".encode())
        admin.execute(f"GRANT CREATE ON DATABASE {urlsplit(database).path[1:]} TO {name}".encode())
        if kind == "owner":
            admin.execute(f"GRANT CREATE ON SCHEMA public TO {name}".encode())
        else:
            admin.execute(f"REVOKE CREATE ON DATABASE {urlsplit(database).path[1:]} FROM {name}".encode())
        yield _as(database, name)
        admin.execute(f"DROP OWNED BY {name} CASCADE".encode())
        admin.execute(f"DROP ROLE {name}".encode())


def _as(url: str, role: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}:secret@{parts.hostname}:{parts.port}"))


def _name(url: str) -> str:
    return str(urlsplit(url).username)


@pytest.fixture
def migrated(owner: str, stranger: str) -> Iterator[Session]:
    """The owner's session: given tables, on which the stranger may INSERT and nothing else, then our migrations."""
    with session(owner) as connection:
        connection.execute(here("baseline.sql").read_bytes())
        for table in migrate.GIVEN:
            connection.execute(f"GRANT INSERT ON {table} TO {_name(stranger)}".encode())
        upgrade(owner)
        yield connection


def test_an_owner_that_is_no_superuser_can_migrate_there_and_back(migrated: Session, owner: str) -> None:
    assert migrate.check(owner) == []
    migrate.downgrade(owner)
    assert value(migrated, "SELECT to_regnamespace('reroot') IS NULL")


def test_a_role_that_may_only_insert_still_can(migrated: Session, stranger: str) -> None:
    with session(stranger) as program:
        for _ in range(2):
            program.execute("INSERT INTO catalogs (workspace_id, name) VALUES (%s, 'Sales')", (WORKSPACE,))
            program.execute("INSERT INTO schemas (catalog_id, name) VALUES (%s, 'Europe')", (WORKSPACE,))
        program.execute("INSERT INTO datasets (workspace_id, name) VALUES (%s, 'Orders')", (WORKSPACE,))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            program.execute("SELECT slug FROM catalogs")
    assert rows(migrated, "SELECT slug FROM catalogs ORDER BY 1") == [("sales",), ("sales_2",)]
    assert rows(migrated, "SELECT slug FROM schemas ORDER BY 1") == [("europe",), ("europe_2",)]


def test_a_role_that_may_only_rename_still_can(migrated: Session, stranger: str) -> None:
    migrated.execute(f"GRANT SELECT, UPDATE ON catalogs TO {_name(stranger)}".encode())
    with session(stranger) as program:
        program.execute("INSERT INTO catalogs (workspace_id, name) VALUES (%s, 'Sales')", (WORKSPACE,))
        program.execute("UPDATE catalogs SET name = 'Verkauf'")
        with pytest.raises(psycopg.errors.CheckViolation, match="cannot be changed"):
            program.execute("UPDATE catalogs SET slug = 'verkauf'")
    assert rows(migrated, "SELECT name, slug FROM catalogs") == [("Verkauf", "sales")]


def test_a_role_that_may_not_read_a_table_may_ask_for_an_identifier(migrated: Session, stranger: str) -> None:
    statement = "INSERT INTO datasets (workspace_id, name) VALUES (%s, 'Orders') RETURNING id"
    dataset = value(migrated, statement, (WORKSPACE,))
    with session(stranger) as program:
        assert value(program, "SELECT reroot.table_identifier(%s)", (dataset,)) == f"datasets.ds_{dataset.hex}"


def test_a_role_sees_nothing_of_the_ledger(migrated: Session, stranger: str) -> None:
    with session(stranger) as program:
        for table in ("moves", "move_events", "pointers", "tenants", "warehouses", "workers", "due"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                program.execute(f"SELECT 1 FROM reroot.{table}".encode())


@pytest.mark.parametrize(
    "call",
    [
        "reroot.take_slug('catalogs', 'workspace_id', '', 'x', '{}')",
        "reroot.backfill_slugs('catalogs', 'workspace_id', '{}', 1)",
        "reroot.lock_slug('catalogs', '', 'x')",
    ],
)
def test_a_role_cannot_call_what_only_the_triggers_need(migrated: Session, stranger: str, call: str) -> None:
    with session(stranger) as program, pytest.raises(psycopg.errors.InsufficientPrivilege):
        program.execute(f"SELECT {call}".encode())
    assert migrated


def test_names_of_a_role_do_not_stand_in_for_those_that_we_mean(
    migrated: Session, empty_database: str, stranger: str
) -> None:
    dataset = value(
        migrated, "INSERT INTO datasets (workspace_id, name) VALUES (%s, 'Orders') RETURNING id", (WORKSPACE,)
    )
    with session(empty_database) as admin:
        admin.execute(f"CREATE SCHEMA trap AUTHORIZATION {_name(stranger)}".encode())
    with session(stranger) as program:
        for shadow in (
            "GRANT USAGE ON SCHEMA trap TO PUBLIC",
            "CREATE TABLE trap.catalogs (workspace_id uuid, slug text)",
            "CREATE TABLE trap.datasets (id uuid, iceberg_namespace text)",
            "CREATE FUNCTION trap.lower(text) RETURNS text LANGUAGE sql AS $$ SELECT 'trapped' $$",
            "CREATE FUNCTION trap.format(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'trapped' $$",
            "CREATE FUNCTION trap.slugify(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'trapped' $$",
        ):
            program.execute(shadow.encode())
        program.execute("SET search_path = trap, pg_catalog, public")
        for _ in range(2):
            program.execute("INSERT INTO public.catalogs (workspace_id, name) VALUES (%s, 'Sales')", (WORKSPACE,))
        assert value(program, "SELECT reroot.table_identifier(%s)", (dataset,)) == f"datasets.ds_{dataset.hex}"
    assert rows(migrated, "SELECT slug FROM catalogs ORDER BY 1") == [("sales",), ("sales_2",)]
