"""Migrations of a control plane that other programs are using meanwhile.

Responsible for: upgrading, downgrading, saying where a database stands and whether it is whole. One migration at a
time per database; the second waits.
Must not know: what the migrations do (``migrations/versions``), the settings, the terminal.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg import sql
from sqlalchemy import Connection as AlchemyConnection
from sqlalchemy import NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from worker.controlplane.connection import Connection, connect, through_pooler, translated
from worker.controlplane.migrations.steps import MigrationRefusedError, Patience, Steps, here
from worker.controlplane.schema import behind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GIVEN: Final = {
    "workspaces": ("id",),
    "catalogs": ("id", "workspace_id", "name"),
    "schemas": ("id", "catalog_id", "name"),
    "datasets": ("id", "workspace_id", "schema_id", "name"),
    "iceberg_sync_log": (
        *("id", "dataset_id", "mode", "status", "iceberg_table", "snapshot_id", "row_count"),
        *("error", "started_at", "finished_at"),
    ),
}
"""The control plane's own tables, and the columns that Reroot reads or writes."""

_LOCK: Final = "1380274768, 0"
"""Held by a migration for its session, in the key space of two integers: the other belongs to the dataset locks."""

_OLDEST: Final = 140000
_OTHER_SECONDS: Final = 600.0
"""How long to wait for another migration of the same database."""

_READY: Final = Patience()


def upgrade(
    url: str,
    *,
    with_baseline: bool = False,
    patience: Patience = _READY,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Bring the database to this version's schema; where it is already and is whole, nothing happens.

    ``with_baseline`` creates the given tables in an empty database first, for demo and tests. ``say`` gets one line for
    whatever takes long. Raises MigrationRefusedError with what to do, ControlPlaneAwayError.
    """
    with _session(url, patience, say) as (connection, alembic), _alone(connection, say):
        _require_version(connection)
        if with_baseline:
            _create_baseline(connection)
        _require_given(connection)
        _known_revision(alembic)
        connection.execute("CREATE SCHEMA IF NOT EXISTS reroot")
        if _revision(alembic) == head() and _broken(connection):
            say("at this version's revision, but not whole: every step is looked at again")
            command.stamp(alembic, "base")
        command.upgrade(alembic, "head")


def downgrade(url: str, *, patience: Patience = _READY, say: Callable[[str], None] = lambda _: None) -> None:
    """Remove everything of ours and leave everything else.

    Refused while any ``iceberg_namespace`` is set or a pointer of ours is open: raises MigrationRefusedError.
    """
    with _session(url, patience, say) as (connection, alembic), _alone(connection, say):
        if _revision(alembic) is None:
            raise MigrationRefusedError("this database holds nothing of Reroot's")
        _known_revision(alembic)
        command.downgrade(alembic, "base")
        connection.execute("DROP TABLE reroot.alembic_version; DROP SCHEMA reroot")


def current(url: str) -> str | None:
    """The revision at which the database is; None where it was never migrated."""
    with _session(url, _READY, lambda _: None) as (_, alembic):
        return _revision(alembic)


def head() -> str:
    """The revision that this version needs."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def check(url: str) -> list[str]:
    """What is missing or broken, one line each, and behind the last colon what helps.

    Empty when the database is as this version needs it.
    """
    with _session(url, _READY, lambda _: None) as (connection, alembic):
        try:
            _require_given(connection)
        except MigrationRefusedError as refusal:
            return [f"{refusal}: see REROOT_DATABASE_URL and the role's search_path"]
        revision = _revision(alembic)
        return _broken(connection) if revision == head() else [behind(revision)]


@contextmanager
def _session(url: str, patience: Patience, say: Callable[[str], None]) -> Iterator[tuple[Connection, Config]]:
    """One connection in autocommit, seen by us through psycopg and by Alembic through SQLAlchemy."""
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: connect(url, role="migrate"),
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
    )
    with _errors_of_ours(), engine.connect() as alchemy:
        connection: Any = alchemy.connection.driver_connection
        yield connection, _config(alchemy, Steps(connection, patience, say))


@contextmanager
def _errors_of_ours() -> Iterator[None]:
    try:
        with translated():
            try:
                yield
            except DBAPIError as error:
                raise (error.orig or error) from error
    except psycopg.Error as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise MigrationRefusedError(f"Postgres refused: {line}") from error


def _config(connection: AlchemyConnection | None = None, steps: Steps | None = None) -> Config:
    config = Config(attributes={"connection": connection, "steps": steps})
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(here("")).replace("%", "%%"))
    return config


@contextmanager
def _alone(connection: Connection, say: Callable[[str], None]) -> Iterator[None]:
    """Make the session ours, and hold the database's migration lock with it.

    Tried, never queued for: a session that queues has a snapshot, and the other's concurrent index build would wait
    for that snapshot's end, each for the other.
    """
    _require_session(connection)
    # A role's default would end a long index build, which harms nobody while it lasts.
    connection.execute("SET statement_timeout = 0")
    connection.execute("SET lock_timeout = '10s'")
    deadline = time.monotonic() + _OTHER_SECONDS
    told = False
    while not _one(connection, f"SELECT pg_try_advisory_lock({_LOCK})"):
        if time.monotonic() > deadline:
            raise MigrationRefusedError("another migration of this database does not end: look at it, then run again")
        if not told:
            say("another migration of this database is running: waiting for its end")
            told = True
        time.sleep(0.2)
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute(f"SELECT pg_advisory_unlock({_LOCK})")


def _require_session(connection: Connection) -> None:
    """Behind a pooler the lock and the timeouts would end up in sessions that are handed to other programs."""
    if through_pooler(connection):
        raise MigrationRefusedError(
            "this way to Postgres goes through a pooler: set REROOT_MIGRATION_URL to a direct one"
        )


def _require_version(connection: Connection) -> None:
    if connection.info.server_version < _OLDEST:
        raise MigrationRefusedError(
            f"Postgres 14 or newer is needed, this is {connection.info.server_version // 10000}"
        )
    encoding = _one(connection, "SHOW server_encoding")
    if encoding != "UTF8":
        raise MigrationRefusedError(f"the database's encoding must be UTF8, this one's is {encoding}")


def _create_baseline(connection: Connection) -> None:
    there = [name for name in GIVEN if _has_table(connection, name)]
    if not there:
        connection.execute(here("baseline.sql").read_bytes())
    elif len(there) < len(GIVEN):
        raise MigrationRefusedError(f"only some of the control plane's tables are there ({', '.join(there)})")


def _require_given(connection: Connection) -> None:
    missing = [name for name in GIVEN if not _has_table(connection, name)]
    if missing:
        raise MigrationRefusedError(
            f"database {connection.info.dbname} has no {', '.join(missing)}; is it the control plane's?"
            " (reroot db upgrade --with-baseline creates its tables for a demo)"
        )
    for table, columns in GIVEN.items():
        absent = [column for column in columns if not _has_column(connection, table, column)]
        if absent:
            raise MigrationRefusedError(f"the control plane's table {table} has no column {', '.join(absent)}")


def _has_table(connection: Connection, name: str) -> bool:
    return _one(connection, "SELECT to_regclass(%s)", (name,)) is not None


def _has_column(connection: Connection, table: str, column: str) -> bool:
    query = "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = %s AND NOT attisdropped"
    return _one(connection, query, (table, column)) is not None


def _revision(alembic: Config) -> str | None:
    context = MigrationContext.configure(alembic.attributes["connection"], opts={"version_table_schema": "reroot"})
    return context.get_current_revision()


def _known_revision(alembic: Config) -> None:
    revision = _revision(alembic)
    known = {script.revision for script in ScriptDirectory.from_config(alembic).walk_revisions()}
    if revision is not None and revision not in known:
        raise MigrationRefusedError(
            f"the database is at revision {revision}, which is newer than this version of Reroot"
        )


def _broken(connection: Connection) -> list[str]:
    return [str(row[0]) for row in connection.execute(here("check.sql").read_bytes())]


def _one(connection: Connection, query: str, parameters: tuple[Any, ...] = ()) -> Any:
    row = connection.execute(sql.SQL(query), parameters or None).fetchone()
    return None if row is None else row[0]
