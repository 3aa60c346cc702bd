"""``reroot db``: its lines and exit codes, and where it connects to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from demo.processes import ServiceError
from tests.support.operator import Operator
from tests.support.other_programs import rows, session, value
from tests.support.pgbouncer import PgBouncer
from tests.support.worker_process import WorkerProcess, worker_settings
from worker.controlplane import migrate, schema
from worker.controlplane.migrations.steps import here

if TYPE_CHECKING:
    from pathlib import Path

    from demo.services import Postgres

NO_POSTGRES = "postgresql://app:hush-hush@127.0.0.1:1/nothing"


def test_from_an_empty_database_to_a_whole_one_and_back(empty_database: str) -> None:
    operator = Operator(empty_database)
    refused = operator.types("db", "upgrade")
    assert (refused.code, refused.out) == (1, "")
    assert "has no workspaces, catalogs, schemas, datasets, iceberg_sync_log" in refused.one_line
    assert operator.types("db", "current").out == "at revision none, this version needs 0003\n"
    unfinished = operator.types("db", "check")
    assert (unfinished.code, unfinished.out) == (1, "")
    # Not the command that has just refused.
    assert "has no workspaces, catalogs, schemas, datasets, iceberg_sync_log" in unfinished.one_line
    assert unfinished.one_line.endswith(": see REROOT_DATABASE_URL and the role's search_path")
    assert operator.types("db", "upgrade", "--with-baseline").out == "at revision 0003, before: none\n"
    assert operator.types("db", "upgrade").out == "at revision 0003, as before\n"
    whole = operator.types("db", "check")
    assert (whole.code, whole.out, whole.err) == (0, "whole, at revision 0003\n", "")
    assert operator.types("db", "downgrade", "--yes").code == 0
    assert operator.types("db", "downgrade", "--yes").one_line == "reroot: this database holds nothing of Reroot's"


def test_check_names_what_is_broken_and_ends_with_1(database: str) -> None:
    with session(database) as connection:
        connection.execute("DROP INDEX reroot_catalogs_slug")
    checked = Operator(database).types("db", "check")
    assert (checked.code, checked.out) == (1, "")
    assert checked.one_line == "index reroot_catalogs_slug of catalogs is missing: reroot db upgrade"


def test_check_names_the_command_that_helps(empty_database: str) -> None:
    operator = Operator(empty_database)
    with session(empty_database) as connection:
        connection.execute(here("baseline.sql").read_bytes())
    assert operator.types("db", "check").one_line == (
        "the database is at revision none, this version needs 0003: reroot db upgrade"
    )
    operator.types("db", "upgrade")
    with session(empty_database) as connection:
        connection.execute("UPDATE reroot.alembic_version SET version_num = '9999'")
    ended = operator.types("db", "check")
    assert ended.one_line == (
        "the database is at revision 9999, this version needs 0003: install the version of Reroot that upgraded it"
    )
    assert operator.types("db", "upgrade").code == 1


def test_the_revision_is_known_without_alembic() -> None:
    assert schema.revisions()[-1] == migrate.head()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DROP SCHEMA reroot CASCADE", "the database is at revision none, this version needs 0003: reroot db upgrade"),
        (
            "UPDATE reroot.alembic_version SET version_num = '0002'",
            "the database is at revision 0002, this version needs 0003: reroot db upgrade",
        ),
    ],
)
def test_a_worker_on_a_database_that_is_not_migrated_ends_with_one_line(
    database: str, valkey: str, tmp_path: Path, change: str, says: str
) -> None:
    with session(database) as connection:
        connection.execute(change.encode())
    worker = WorkerProcess(tmp_path, worker_settings(database, valkey, tmp_path))
    with pytest.raises(ServiceError), worker:
        pass
    assert worker.text().splitlines()[-1] == says
    assert "Traceback" not in worker.text()


def test_a_later_revision_lets_a_worker_start_in_the_course_of_an_upgrade(database: str) -> None:
    with session(database) as connection:
        connection.execute("UPDATE reroot.alembic_version SET version_num = '9999'")
    schema.require_migrated(database)


def test_a_downgrade_that_would_lose_places_ends_with_1(database: str) -> None:
    with session(database) as connection:
        connection.execute(
            "INSERT INTO datasets (workspace_id, name, iceberg_namespace) VALUES (gen_random_uuid(), 'x', 'a.b')"
        )
    refused = Operator(database).types("db", "downgrade", "--yes")
    assert refused.code == 1
    assert refused.one_line.startswith("reroot: 1 datasets have an iceberg_namespace")
    assert migrate.check(database) == []


@pytest.mark.parametrize("command", ["upgrade", "current", "check", "downgrade"])
def test_errors_are_one_line_each(command: str) -> None:
    yes = ["--yes"] if command == "downgrade" else []
    away = Operator(NO_POSTGRES).types("db", command, *yes)
    assert (away.code, away.out) == (3, "")
    assert "Postgres cannot be reached" in away.one_line
    assert "hush-hush" not in away.err
    assert Operator("mysql://x").types("db", command, *yes).code == 2


def test_a_pooler_is_refused_and_gone_around(database: str, postgres_server: Postgres, tmp_path: Path) -> None:
    name = database.rpartition("/")[2]
    with session(database) as connection, PgBouncer(tmp_path, postgres_server) as pooler:
        connection.execute("DROP INDEX reroot_catalogs_slug")
        refused = Operator(pooler.url(name)).types("db", "upgrade")
        assert refused.code == 1
        assert "REROOT_MIGRATION_URL" in refused.one_line
        upgraded = Operator(pooler.url(name), REROOT_MIGRATION_URL=database).types("db", "upgrade")
        assert upgraded.code == 0
    assert migrate.check(database) == []


def test_given_tables_in_another_schema_are_found_by_the_search_path(empty_database: str) -> None:
    with session(empty_database) as connection:
        connection.execute('CREATE SCHEMA "Control Plane"')
        name = value(connection, "SELECT current_database()")
        connection.execute(f"""ALTER DATABASE {name} SET search_path = "Control Plane", public""".encode())
    with session(empty_database) as connection:
        connection.execute(here("baseline.sql").read_bytes())
        assert Operator(empty_database).types("db", "upgrade").code == 0
        assert migrate.check(empty_database) == []
        connection.execute("SET search_path = public")
        for _ in range(2):
            connection.execute(
                """INSERT INTO "Control Plane".catalogs (workspace_id, name) VALUES (%s, 'Sales')""", ("0" * 32,)
            )
        assert rows(connection, """SELECT slug FROM "Control Plane".catalogs ORDER BY 1""") == [
            ("sales",),
            ("sales_2",),
        ]
        dataset = value(
            connection,
            """INSERT INTO "Control Plane".datasets (workspace_id, name) VALUES (%s, 'x') RETURNING id""",
            ("0" * 32,),
        )
        assert value(connection, "SELECT reroot.table_identifier(%s)", (dataset,)) == f"datasets.ds_{dataset.hex}"
