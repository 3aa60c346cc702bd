"""``reroot.table_identifier`` against the resolver in Python, for every kind of id."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.other_programs import Session, rows, session, value
from worker.controlplane import migrate
from worker.controlplane.migrate import upgrade
from worker.controlplane.migrations.steps import here
from worker.identifiers import LEGACY_NAMESPACE, default_table_name, name_after, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.every_postgres

KINDS: Final = {
    "uuid": (str(uuid.UUID(int=0xABC)), str(uuid.UUID(int=0xDEF))),
    "text": ("Set-01-AB", "it's"),
    "varchar(36)": ("Set-01-AB", "b"),
    "char(8)": ("Set-01-A", "Set-01-B"),
    "bigint": ("42", "43"),
}


class Log(NamedTuple):
    """A log row: older ones first."""

    status: str
    iceberg_table: str | None


def expected(dataset_id: str, namespace: str | None, log: list[Log]) -> str | None:
    """What Python says: the resolver's namespace, and the name that the latest succeeded row has in it."""
    resolved = resolve(namespace)
    succeeded = [row.iceberg_table for row in log if row.status == "succeeded" and row.iceberg_table is not None]
    if not succeeded:
        return f"{resolved}.{default_table_name(dataset_id)}"
    names = [name_after(resolved, row) or name_after(LEGACY_NAMESPACE, row) for row in succeeded]
    known = [name for name in names if name]
    return f"{resolved}.{known[-1]}" if known else None


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The type of the control plane's ids."""
    return str(request.param)


@pytest.fixture
def program(empty_database: str, kind: str) -> Iterator[Session]:
    """A migrated control plane whose ids are of that type."""
    baseline = here("baseline.sql").read_text(encoding="utf-8")
    with session(empty_database) as connection:
        connection.execute(baseline.replace(" DEFAULT gen_random_uuid()", "").replace("uuid", kind).encode())
        fill(connection, KINDS[kind][0])
        upgrade(empty_database)
        assert migrate.check(empty_database) == []
        yield connection


def fill(connection: Session, identity: str) -> None:
    """Two catalogs of one name, and two datasets."""
    ids = [identity, next(other for pair in KINDS.values() if identity in pair for other in pair if other != identity)]
    for one in ids:
        connection.execute("INSERT INTO catalogs (id, workspace_id, name) VALUES (%s, %s, 'Sales')", (one, identity))
        connection.execute("INSERT INTO datasets (id, workspace_id, name) VALUES (%s, %s, 'Orders')", (one, identity))


def record(connection: Session, identity: str, namespace: str | None, log: list[Log]) -> None:
    """Make the dataset what the arguments say."""
    connection.execute("UPDATE datasets SET iceberg_namespace = %s WHERE id = %s", (namespace, identity))
    connection.execute("DELETE FROM iceberg_sync_log")
    for hour, row in enumerate(log):
        connection.execute(
            "INSERT INTO iceberg_sync_log (dataset_id, mode, status, iceberg_table, started_at, finished_at)"
            " VALUES (%s, 'sync.full', %s, %s, now() + make_interval(hours => %s), now() + make_interval(hours => %s))",
            (identity, *row, hour, hour),
        )


def literal(text: str) -> str:
    """A literal that no type is given to, as a person writes it."""
    return "'" + text.replace("'", "''") + "'"


def asked(connection: Session, identity: str, kind: str) -> str | None:
    """The answer, which must be the same however the id is passed: its own type, text, or a literal."""
    answers = rows(
        connection,
        "SELECT reroot.table_identifier(id), reroot.table_identifier(rtrim(id::text)),"
        f" reroot.table_identifier({literal(identity)}) FROM datasets WHERE id = {literal(identity)}::{kind}",
    )
    (answer,) = {one for row in answers for one in row}
    return None if answer is None else str(answer)


def test_ids_of_any_type_get_slugs(program: Session, kind: str) -> None:
    assert rows(program, "SELECT slug FROM catalogs ORDER BY 1") == [("sales",), ("sales_2",)]
    statement = "INSERT INTO schemas (id, catalog_id, name) VALUES (%s, %s, %s) RETURNING slug"
    first, second = KINDS[kind]
    assert value(program, statement, (first, first, "Europe")) == "europe"
    assert value(program, statement, (second, first, "Europe")) == "europe_2"


def test_a_dataset_without_a_table_gets_the_default_name(program: Session, kind: str) -> None:
    identity = KINDS[kind][0]
    assert asked(program, identity, kind) == f"datasets.{default_table_name(identity)}"


def test_an_unknown_dataset_has_no_identifier(program: Session, kind: str) -> None:
    program.execute("DELETE FROM datasets")
    assert value(program, f"SELECT reroot.table_identifier({literal(KINDS[kind][1])})") is None


def test_the_schema_of_a_dataset_plays_no_part(program: Session, kind: str) -> None:
    identity = KINDS[kind][0]
    before = asked(program, identity, kind)
    program.execute("INSERT INTO schemas (id, catalog_id, name) VALUES (%s, %s, 'Europe')", (identity, identity))
    program.execute("UPDATE datasets SET schema_id = %s", (identity,))
    assert asked(program, identity, kind) == before


NAMESPACES: Final = st.sampled_from([None, "sales.europe", "sales", "sales.europe_2", "datasets"])
NAMES: Final = st.sampled_from(["ds_1", "ds_2", "with.dots", "Ünï çode", "", "datasets.ds_3", "sales.europe.x"])
IDENTIFIERS: Final = st.none() | st.builds("{}.{}".format, NAMESPACES.filter(bool), NAMES) | NAMES
LOGS: Final = st.lists(
    st.builds(Log, st.sampled_from(["succeeded", "succeeded", "failed", "running"]), IDENTIFIERS), max_size=5
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(namespace=NAMESPACES, log=LOGS)
def test_it_agrees_with_the_resolver(program: Session, kind: str, namespace: str | None, log: list[Log]) -> None:
    identity = KINDS[kind][0]
    record(program, identity, namespace, log)
    assert asked(program, identity, kind) == expected(identity, namespace, log)
