"""Connections to the control plane, and what its errors mean.

Responsible for: how a connection is opened (timeouts, keepalives, a pooler's needs) and the one table that turns
psycopg's errors into ours.
Must not know: any table.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import IsolationLevel, errors, sql
from psycopg.rows import TupleRow

from worker.moves.ports import HeldError

if TYPE_CHECKING:
    from collections.abc import Iterator

Connection = psycopg.Connection[TupleRow]

CONNECT_TIMEOUT: Final = 5
"""Seconds for one connection attempt."""

TABLE_SECONDS: Final = 0.9
"""How long a statement of an attempt waits for what another program holds. Shorter than Postgres' own
``deadlock_timeout`` of a second, after which a program that waits for the dataset's lock would be ended."""

_PREPARE_AFTER: Final = 5
"""Uses of a statement after which it is prepared. Planning took a third of the server's processor time for a move."""


_UNACKNOWLEDGED_MS: Final = 25_000
"""After this a connection whose other end does not acknowledge what was sent is lost: as long as keepalives take."""

_ROW_SECONDS: Final = 5.0
"""How long a statement that has a limit waits for a row or a table that another transaction holds."""

_OWN_SETTINGS: Final = """
SELECT count(set_config(name, setting, false)) FROM (VALUES
    ('default_transaction_isolation', 'read committed'),
    ('statement_timeout', %(statement)s),
    ('lock_timeout', %(wait)s),
    ('idle_session_timeout', '0'),
    ('transaction_timeout', '0'),
    ('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'))
) AS own (name, setting)
WHERE pg_backend_pid() = %(pid)s AND current_setting(name, true) IS NOT NULL
"""
"""For the session, and not behind a pooler, which tells its clients a process number of its own. Older versions of
Postgres do not have all of these."""


class ControlPlaneError(Exception):
    """Root of what can go wrong with the control plane. The text is one line and holds no password."""


class ControlPlaneAwayError(ControlPlaneError):
    """Postgres cannot be reached, is starting or stopping, or cut the connection, or this one takes no writes.

    What was sent may have been done. The connection is of no more use.
    """


class RowsBusyError(ControlPlaneError, HeldError):
    """Another transaction holds a table, row or lock, and it was not waited for any longer. Nothing was done."""


class ControlPlaneRefusedError(ControlPlaneError):
    """Postgres understood and refused: a missing right, table or schema version."""


class AddressRefusedError(ControlPlaneRefusedError):
    """The address cannot be read, so that nobody was asked. The text does not quote it."""

    def __init__(self) -> None:
        super().__init__(
            "the address of Postgres (REROOT_DATABASE_URL, REROOT_MIGRATION_URL) cannot be read:"
            " percent-encode the password, and see the parameters behind the question mark"
        )


_TRANSLATION: Final[tuple[tuple[type[psycopg.Error], type[ControlPlaneError]], ...]] = (
    (errors.LockNotAvailable, RowsBusyError),
    (errors.DeadlockDetected, RowsBusyError),
    (errors.SerializationFailure, RowsBusyError),
    (errors.UndefinedTable, ControlPlaneRefusedError),
    (errors.UndefinedColumn, ControlPlaneRefusedError),
    (errors.UndefinedFunction, ControlPlaneRefusedError),
    (errors.InvalidSchemaName, ControlPlaneRefusedError),
    (errors.InsufficientPrivilege, ControlPlaneRefusedError),
    # The server cuts a connection that is silent, or busy, for too long, and does not count that as operational.
    (errors.IdleInTransactionSessionTimeout, ControlPlaneAwayError),
    (errors.TransactionTimeout, ControlPlaneAwayError),
    # Another program's DDL changed a column of a prepared statement's result: a new connection prepares it anew.
    (errors.FeatureNotSupported, ControlPlaneAwayError),
    # A failover made a replica of it, or an old address leads to one: a new connection finds the primary.
    (errors.ReadOnlySqlTransaction, ControlPlaneAwayError),
    (psycopg.OperationalError, ControlPlaneAwayError),
    (psycopg.InterfaceError, ControlPlaneAwayError),
)


@contextmanager
def translated() -> Iterator[None]:
    """Turn psycopg's errors into ours; what is not in the table is a defect and passes through."""
    try:
        yield
    except psycopg.Error as error:
        for foreign, ours in _TRANSLATION:
            if isinstance(error, foreign):
                raise ours(_one_line(error)) from error
        raise


def _one_line(error: psycopg.Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def plain_url(url: str) -> str:
    """The URL as libpq reads it: SQLAlchemy's driver suffix, which some settings carry, is taken off."""
    scheme, separator, rest = url.partition("://")
    return scheme.split("+")[0] + separator + rest


def connect(
    url: str, *, role: str, autocommit: bool = True, prepare: bool = False, statement_seconds: float = 0
) -> Connection:
    """Open a connection named ``reroot-<role>`` in ``pg_stat_activity``.

    Its transactions are read committed, and no statement takes longer than ``statement_seconds`` (0: as long as it
    likes), whatever the database, the role or the server has as a default. Behind a pooler only the first holds: what
    is set for a session there is set for other programs too, so that a transaction sets what it needs.

    ``prepare``: for an attempt's statements, which are sent again and again, and wait ``TABLE_SECONDS`` for another
    program. Never prepared behind a pooler: in transaction mode the next statement may run on another backend.

    Raises ControlPlaneAwayError, AddressRefusedError.
    """
    with translated():
        try:
            connection = psycopg.connect(
                plain_url(url),
                autocommit=autocommit,
                prepare_threshold=None,
                connect_timeout=CONNECT_TIMEOUT,
                application_name=f"reroot-{role}",
                keepalives=1,
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=3,
                tcp_user_timeout=_UNACKNOWLEDGED_MS,
            )
        except (psycopg.ProgrammingError, UnicodeError):
            # libpq's text quotes what it cannot read, which is the password more often than not.
            raise AddressRefusedError from None
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        waiting = TABLE_SECONDS if prepare else min(statement_seconds, _ROW_SECONDS)
        values = {
            "pid": connection.info.backend_pid,
            "statement": milliseconds(statement_seconds),
            "wait": milliseconds(waiting),
        }
        own: Any = connection.execute(_OWN_SETTINGS, values).fetchone()
        connection.commit()
        if prepare and own[0]:
            connection.prepare_threshold = _PREPARE_AFTER
    return connection


def milliseconds(seconds: float) -> str:
    """A duration as Postgres reads it in a setting."""
    return f"{int(seconds * 1000)}ms"


def through_pooler(connection: Connection) -> bool:
    """Whether a pooler stands between: it tells its clients a process number of its own. Raises psycopg's errors."""
    row: Any = connection.execute("SELECT pg_backend_pid()").fetchone()
    return bool(row[0] != connection.info.backend_pid)


def column_type(connection: Connection, table: str, column: str) -> sql.SQL:
    """The type that the given control plane uses for an id: parameters are cast to it, columns never are.

    Casting the column costs a scan of the table (57 ms against 0.7 ms on 300,000 rows).
    """
    with translated():
        row: Any = connection.execute(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attname = %s AND NOT attisdropped",
            (table, column),
        ).fetchone()
    if row is None:
        raise ControlPlaneRefusedError(f"the control plane has no column {table}.{column}")
    return sql.SQL(row[0])
