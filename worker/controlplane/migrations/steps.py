"""DDL that a live database does not feel: the steps of which migrations are made.

Responsible for: taking each lock for moments only (a ``lock_timeout``, bounded tries with pauses), indexes built and
repaired concurrently, constraints that are added first and validated after. Every step looks first whether it is done
already, so that a migration that was cut off is simply run again. The connection is in autocommit: each step is a
transaction of its own.
Must not know: which tables and columns there are; migrations say so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from alembic import op
from psycopg import errors, sql

from worker.controlplane.connection import Connection, ControlPlaneRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

_LOCKED_OUT: Final = (errors.LockNotAvailable, errors.DeadlockDetected)


class MigrationRefusedError(ControlPlaneRefusedError):
    """A migration that cannot start or cannot go on. The text says why and what to do; nothing is broken."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a migration queues for a lock, and how often."""

    lock_seconds: float = 2.0
    """While we queue for a table, everybody else queues behind us: this is how long they feel it."""
    index_seconds: float = 60.0
    """A concurrent build waits for older transactions, and nobody waits behind it."""
    tries: int = 30
    pause_seconds: float = 1.0
    """Before the second try; it doubles up to five times this, so that the others get through in between."""
    batch: int = 500
    """Rows per transaction of a backfill."""

    def pause(self, attempt: int) -> float:
        """Seconds to wait after the ``attempt``-th try, counted from 1."""
        return float(self.pause_seconds * min(5.0, 2.0 ** (attempt - 1)))


@dataclass(frozen=True, slots=True)
class GivenTable:
    """A table of the control plane's, where the connection's search path finds it."""

    oid: int
    schema: str
    name: str

    @property
    def reference(self) -> sql.Identifier:
        """Its qualified, quoted name."""
        return sql.Identifier(self.schema, self.name)

    def beside(self, name: str) -> sql.Identifier:
        """The name of something that lies in the same schema, such as an index."""
        return sql.Identifier(self.schema, name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def here(name: str) -> Path:
    """A file of statements beside this module."""
    return Path(__file__).parent / name


def current_steps() -> Steps:
    """The steps of the run that is under way, for a migration."""
    config = op.get_context().config
    assert config is not None
    steps: Steps = config.attributes["steps"]
    return steps


class Steps:
    """The steps, on one connection in autocommit. ``say`` is told in one line what takes long or has to wait."""

    def __init__(self, connection: Connection, patience: Patience, say: Callable[[str], None]) -> None:
        self._connection = connection
        self._patience = patience
        self._say = say

    def value(self, query: sql.SQL | sql.Composed, parameters: tuple[Any, ...] = ()) -> Any:
        """The first column of the first row, or None."""
        row = self._connection.execute(query, parameters or None).fetchone()
        return None if row is None else row[0]

    def given(self, name: str) -> GivenTable:
        """The given table of that name. Raises MigrationRefusedError where there is none."""
        row = self._connection.execute(
            "SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.oid = to_regclass(%s)",
            (name,),
        ).fetchone()
        if row is None:
            raise MigrationRefusedError(f"the control plane has no table {name}")
        return GivenTable(*row)

    @property
    def batch(self) -> int:
        """Rows per transaction of a backfill."""
        return self._patience.batch

    def type_of(self, table: GivenTable, column: str) -> tuple[sql.Identifier, bool]:
        """The type of a column, without its length (a cast to it must cut nothing), and whether it is a text type."""
        row: Any = self._connection.execute(
            "SELECT n.nspname, t.typname, t.typcategory = 'S' FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
            " JOIN pg_namespace n ON n.oid = t.typnamespace WHERE a.attrelid = %s AND a.attname = %s",
            (table.oid, column),
        ).fetchone()
        return sql.Identifier(row[0], row[1]), bool(row[2])

    def run(self, statement: sql.SQL | sql.Composed) -> None:
        """Run what needs no lock on a given table."""
        self._connection.execute(statement)

    def drop_functions(self, *names: str) -> None:
        """Remove functions of ours with all their overloads, in this order."""
        for name in names:
            found = sql.SQL(
                "SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc"
                " WHERE pronamespace = 'reroot'::regnamespace AND proname = %s"
            )
            if signatures := self.value(found, (name,)):
                self._connection.execute(sql.SQL("DROP FUNCTION {}").format(sql.SQL(signatures)))

    def script(self, path: Path, **words: sql.Composable) -> None:
        """Run a file of statements as one transaction; each ``@word@`` in it is replaced."""
        text = path.read_text(encoding="utf-8")
        for word, replacement in words.items():
            text = text.replace(f"@{word}@", replacement.as_string(self._connection))
        self._connection.execute(text.encode())

    def patiently(self, statement: sql.SQL | sql.Composed, *, on: GivenTable) -> None:
        """Run a statement that needs a strong lock on a table: tries that are short, with pauses between them.

        Raises MigrationRefusedError when the tries are used up, naming who holds the table.
        """
        for attempt in range(1, self._patience.tries + 1):
            try:
                self._under(self._patience.lock_seconds, statement)
            except _LOCKED_OUT:
                self._rest(attempt, on)
            else:
                return
        raise MigrationRefusedError(
            f"{on} stays locked by {self._holder(on)}: nothing is half done, run the same command again later"
        )

    def add_column(self, table: GivenTable, column: str, kind: str) -> None:
        """A nullable column without a default: a change of the catalogue only, whatever the table's size."""
        if not self.has_column(table, column):
            statement = sql.SQL("ALTER TABLE {} ADD COLUMN {} {}")
            self.patiently(statement.format(table.reference, sql.Identifier(column), sql.SQL(kind)), on=table)

    def has_column(self, table: GivenTable, column: str) -> bool:
        """Whether the table has the column."""
        found = sql.SQL("SELECT 1 FROM pg_attribute WHERE attrelid = %s AND attname = %s AND NOT attisdropped")
        return self.value(found, (table.oid, column)) is not None

    def add_check(self, table: GivenTable, name: str, condition: str) -> None:
        """A check that binds new rows at once; the old ones are looked at later, by ``validate``."""
        if self._validated(table, name) is None:
            statement = sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} CHECK ({}) NOT VALID")
            self.patiently(
                statement.format(table.reference, sql.Identifier(name), sql.SQL(condition)),
                on=table,
            )

    def validate(self, table: GivenTable, name: str) -> None:
        """Look at every row that was there before the check, under a lock that stops neither readers nor writers."""
        if self._validated(table, name) is False:
            statement = sql.SQL("ALTER TABLE {} VALIDATE CONSTRAINT {}")
            self.patiently(statement.format(table.reference, sql.Identifier(name)), on=table)

    def add_trigger(self, table: GivenTable, name: str, definition: str) -> None:
        """A row trigger; ``definition`` holds ``{table}``. What was in flight before has ended when it is there."""
        known = sql.SQL("SELECT 1 FROM pg_trigger WHERE tgrelid = %s AND tgname = %s")
        if self.value(known, (table.oid, name)) is None:
            statement = sql.SQL("CREATE TRIGGER {} ").format(sql.Identifier(name))
            self.patiently(statement + sql.SQL(definition).format(table=table.reference), on=table)

    def drop_trigger(self, table: GivenTable, name: str) -> None:
        """Remove a trigger, where it is there."""
        known = sql.SQL("SELECT 1 FROM pg_trigger WHERE tgrelid = %s AND tgname = %s")
        if self.value(known, (table.oid, name)) is not None:
            statement = sql.SQL("DROP TRIGGER {} ON {}")
            self.patiently(statement.format(sql.Identifier(name), table.reference), on=table)

    def drop_column(self, table: GivenTable, column: str) -> None:
        """Remove a column of ours, and with it the checks and indexes that stand on it."""
        if self.has_column(table, column):
            statement = sql.SQL("ALTER TABLE {} DROP COLUMN {}")
            self.patiently(statement.format(table.reference, sql.Identifier(column)), on=table)

    def build_index(self, table: GivenTable, name: str, definition: str, *, unique: bool = False) -> None:
        """An index that is built while everybody writes; an invalid one that a broken run has left is built again.

        ``definition`` is what follows the table's name. Raises MigrationRefusedError when the tries are used up.
        """
        kind = sql.SQL("UNIQUE INDEX" if unique else "INDEX")
        statement = sql.SQL("CREATE {} CONCURRENTLY {} ON {} {}").format(
            kind, sql.Identifier(name), table.reference, sql.SQL(definition)
        )
        for attempt in range(1, self._patience.tries + 1):
            if self._index_valid(table, name):
                return
            try:
                self.drop_index(table, name)
                self._under(self._patience.index_seconds, statement)
            except _LOCKED_OUT:
                self._rest(attempt, table)
        if not self._index_valid(table, name):
            raise MigrationRefusedError(
                f"index {name} waits for {self._holder(table)}: nothing is half done, run the same command again later"
            )

    def drop_index(self, table: GivenTable, name: str) -> None:
        """Remove an index of ours, valid or not, where it is there."""
        if self._index_valid(table, name) is not None:
            statement = sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(table.beside(name))
            self._under(self._patience.index_seconds, statement)

    def in_batches(self, what: str, call: sql.Composed, left: sql.Composed, *, on: GivenTable) -> None:
        """Call a function that does one batch and returns its size, a transaction each, until nothing is left.

        ``left`` counts what is left: a batch passes over rows that somebody holds, and they are come back to. Raises
        MigrationRefusedError when such rows stay held.
        """
        done, attempt = 0, 0
        while self.value(left):
            attempt += 1
            try:
                given = int(self.value(call))
            except _LOCKED_OUT:
                given = 0
            if given:
                done, attempt = done + given, 0
                self._say(f"{what}: {done} so far")
            elif attempt > self._patience.tries:
                raise MigrationRefusedError(
                    f"{what}: rows of {on} stay locked by {self._holder(on)}: run it again later"
                )
            else:
                self._rest(attempt, on)

    def _under(self, lock_seconds: float, statement: sql.SQL | sql.Composed) -> None:
        self._connection.execute("SELECT set_config('lock_timeout', %s, false)", (f"{round(lock_seconds * 1000)}ms",))
        self._connection.execute(statement)

    def _rest(self, attempt: int, table: GivenTable) -> None:
        pause = self._patience.pause(attempt)
        self._say(
            f"{table} is locked by {self._holder(table)}; again in {pause:g} s ({attempt}/{self._patience.tries})"
        )
        time.sleep(pause)

    def _holder(self, table: GivenTable) -> str:
        """Who holds the table for longest, in words."""
        row = self._connection.execute(
            "SELECT a.pid, coalesce(nullif(a.application_name, ''), a.usename, 'unnamed'),"
            "       extract(epoch FROM clock_timestamp() - a.xact_start)::integer"
            " FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
            " WHERE l.relation = %s AND l.granted AND l.pid <> pg_backend_pid() ORDER BY a.xact_start LIMIT 1",
            (table.oid,),
        ).fetchone()
        if row is None:
            return "another transaction"
        # Without the rights of pg_read_all_stats the age of another role's transaction is hidden.
        age = "" if row[2] is None else f", open for {row[2]} s"
        return f"process {row[0]} ({row[1]}{age})"

    def _validated(self, table: GivenTable, name: str) -> bool | None:
        """Whether a constraint is validated; None where there is none."""
        found = sql.SQL("SELECT convalidated FROM pg_constraint WHERE conrelid = %s AND conname = %s")
        result: bool | None = self.value(found, (table.oid, name))
        return result

    def _index_valid(self, table: GivenTable, name: str) -> bool | None:
        """Whether an index is valid; None where there is none."""
        found = sql.SQL(
            "SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            " WHERE i.indrelid = %s AND c.relname = %s"
        )
        result: bool | None = self.value(found, (table.oid, name))
        return result
