"""The control plane's own lock, and what is written on its connection.

Responsible for: taking ``pg_advisory_xact_lock(hashtext(dataset_id))``, the very key that the control plane's writers
take; the flip; every end of an attempt.
Must not know: what happens between the lock and the end.

The lock is a transaction, so that it works behind a pooler in transaction mode. That transaction touches no table
before the flip or the end: it would hold up other programs' DDL for as long as a catalog takes to answer.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from worker.controlplane.connection import (
    TABLE_SECONDS,
    Connection,
    ControlPlaneAwayError,
    RowsBusyError,
    milliseconds,
    translated,
)
from worker.moves.machine import Direction, State
from worker.moves.ports import Claimed, Flip, LockLostError, Written
from worker.outcome import Busy, Done, Ignored, Outcome, Park, Retry, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import sql

    from worker.identifiers import TableIdentifier

_IDLE_MARGIN: Final = 30.0

_SETTINGS: Final = """
SELECT set_config('idle_in_transaction_session_timeout', %(idle)s, true),
       set_config('tcp_keepalives_idle', '10', true), set_config('tcp_keepalives_interval', '5', true),
       set_config('tcp_keepalives_count', '3', true), set_config('lock_timeout', %(wait)s, true),
       set_config('statement_timeout', %(statement)s, true),
       CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
            THEN set_config('transaction_timeout', '0', true) END,
       CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
"""
"""For the lock's transaction, behind a pooler too, whatever the database has as a default."""
_TRY: Final = (
    _SETTINGS.rstrip() + ", CASE WHEN pg_try_advisory_xact_lock(hashtext(%(dataset)s::text)) THEN pg_backend_pid() END"
)
_QUEUE: Final = (
    "SELECT pg_advisory_xact_lock(hashtext(%(dataset)s::text)), set_config('lock_timeout', %(wait)s, true),"
    " pg_backend_pid()"
)
"""Both end with the backend's number as Postgres has it: a pooler tells its clients another."""


_DATASETS: Final = "LOCK TABLE datasets IN ACCESS SHARE MODE NOWAIT"
_SYNC_LOG: Final = "LOCK TABLE iceberg_sync_log IN ACCESS SHARE MODE NOWAIT"
"""``NOWAIT`` of a row does not cover its table, and a program that alters the table may be waiting for our lock."""
_DATASET_ROW: Final = "SELECT 1 FROM datasets WHERE id = %(dataset)s::{dataset_type} FOR NO KEY UPDATE NOWAIT"
_LOG_ROWS: Final = (
    "SELECT 1 FROM iceberg_sync_log WHERE dataset_id = %(dataset)s::{log_type} AND status = 'succeeded'"
    " AND starts_with(iceberg_table, %(old)s) FOR NO KEY UPDATE NOWAIT"
)
"""Both are taken without waiting: a writer that holds its log row and waits for our lock must not die of a deadlock. No
key changes, so that rows that refer to these by a foreign key can be inserted meanwhile."""

_COLUMN: Final = (
    "UPDATE datasets SET iceberg_namespace = %(after)s"
    " WHERE id = %(dataset)s::{dataset_type} AND iceberg_namespace IS NOT DISTINCT FROM %(before)s"
)
"""Out: only where it is NULL. Back: only where it is our place."""
_COLUMN_HELD: Final = (
    "SELECT 1 FROM datasets"
    " WHERE id = %(dataset)s::{dataset_type} AND iceberg_namespace IS NOT DISTINCT FROM %(before)s"
)
_IDLE: Final = "SELECT set_config('idle_in_transaction_session_timeout', %(idle)s, true)"
_LOG: Final = (
    "UPDATE iceberg_sync_log SET iceberg_table = %(new)s || substr(iceberg_table, length(%(old)s) + 1)"
    " WHERE dataset_id = %(dataset)s::{log_type} AND status = 'succeeded' AND starts_with(iceberg_table, %(old)s)"
)

_ENDED: Final = (
    " attempt_started_at = NULL, updated_at = clock_timestamp()"
    " WHERE dataset_id = %(dataset)s AND state = %(from)s AND claim = %(claim)s"
)
_FLIPPED: Final = (
    "UPDATE reroot.moves SET state = %(to)s, attempts = 0, busy_count = 0, busy_since = NULL, waiting_for = NULL,"
    " target_namespace = CASE direction WHEN 'out' THEN %(namespace)s ELSE target_namespace END,"
    " table_uuid = %(uuid)s, old_location = %(location)s,"
    " old_sequence_number = %(sequence)s, snapshot_id = %(snapshot)s, row_count = %(rows)s,"
    " flipped_at = clock_timestamp(), resolver_changed_at = clock_timestamp(), published_at = NULL,"
    " done_at = CASE %(to)s WHEN 'done' THEN clock_timestamp() END,"
    " not_before = clock_timestamp() + make_interval(secs => %(grace)s)," + _ENDED
)
_DONE: Final = (
    "UPDATE reroot.moves SET state = 'done', busy_count = 0, busy_since = NULL, waiting_for = NULL,"
    " done_at = clock_timestamp(), given_up = NULL," + _ENDED
)
_PLANNED_AGAIN: Final = (
    "WITH planned AS ("
    " UPDATE reroot.moves SET state = 'queued', direction = 'out', claim = claim + 1, attempts = 0, table_uuid = NULL,"
    " old_location = NULL, old_sequence_number = NULL, flipped_at = NULL, done_at = NULL,"
    " not_before = clock_timestamp(), published_at = NULL, updated_at = clock_timestamp()"
    " WHERE dataset_id = %(dataset)s AND state = 'done' AND claim = %(claim)s"
    "  AND 'i' = (SELECT e.transition FROM reroot.move_events e"
    "   WHERE e.dataset_id = %(dataset)s AND e.event = 'resolved' ORDER BY e.id DESC LIMIT 1)"
    " RETURNING dataset_id, claim)"
    " INSERT INTO reroot.move_events (dataset_id, claim, event, transition, from_state, to_state)"
    " SELECT dataset_id, claim, 'planned', 'i', 'done', 'queued' FROM planned"
)
"""A person kept the old side of a flipped move, which turned it around: once the new side is withdrawn, the move begins
anew. One that was on its way back already stays back."""
_OPEN_RENAME_SECONDS: Final = 10
"""The longest pause of a dataset whose rename may have happened, whatever its attempt asked for: readers miss it."""

_LATER: Final = (
    "UPDATE reroot.moves SET published_at = NULL,"
    " not_before = clock_timestamp() + make_interval(secs => CASE WHEN EXISTS (SELECT FROM reroot.pointers o"
    "  WHERE o.dataset_id = moves.dataset_id AND o.action = 'rename' AND o.closed_at IS NULL)"
    f" THEN least(%(after)s, {_OPEN_RENAME_SECONDS}) ELSE %(after)s END),"
    " attempts = attempts - %(refund)s, waiting_for = %(why)s,"
    " busy_count = CASE WHEN %(busy)s THEN busy_count + 1 ELSE 0 END,"
    " busy_since = CASE WHEN %(busy)s THEN coalesce(busy_since, clock_timestamp()) END," + _ENDED
)
_PARKED: Final = (
    "UPDATE reroot.moves SET state = 'parked', busy_count = 0, busy_since = NULL, waiting_for = NULL,"
    " park_code = %(code)s, park_text = %(why)s, park_remedy = %(remedy)s, park_beside = %(beside)s," + _ENDED
)
_KEPT: Final = (
    "UPDATE reroot.pointers SET closed_at = clock_timestamp(), outcome = 'kept'"
    " WHERE id = ANY(%(entries)s) AND closed_at IS NULL"
)
_EVENT: Final = (
    "INSERT INTO reroot.move_events (dataset_id, claim, event, transition, from_state, to_state, worker, detail)"
    " SELECT dataset_id, claim, %(event)s, %(letter)s, %(from)s, state, worker, %(detail)s::jsonb FROM changed"
)
"""One for each row that the ledger's statement has changed."""
_NEWS: Final = (
    " WHERE NOT EXISTS (SELECT FROM (SELECT e.event, e.detail->>'why' AS why FROM reroot.move_events e"
    "  WHERE e.dataset_id = %(dataset)s ORDER BY e.id DESC LIMIT 1) last"
    "  WHERE last.event = %(event)s AND last.why = %(why)s)"
)
"""Only where the last event does not say the same: what waits may do so for hours."""


def hold(connection: Connection, dataset_id: str, *, queue_for: float | None, idle_seconds: float) -> int | None:
    """Begin the lock's transaction and take the lock. Returns the number of the backend that holds it.

    None where somebody else holds the lock. Raises ControlPlaneError.
    """
    values = {
        "idle": milliseconds(idle_seconds + _IDLE_MARGIN),
        # Longer than it queues: otherwise a lock that is held would look like a server that is away.
        "statement": milliseconds(idle_seconds + _IDLE_MARGIN + (queue_for or 0)),
        "wait": milliseconds(TABLE_SECONDS if queue_for is None else queue_for),
        "dataset": dataset_id,
    }
    with translated():
        # No pipeline: one ends with a message that makes the server forget to watch for silence.
        if queue_for is None:
            taken: Any = connection.execute(_TRY, values).fetchone()
        else:
            connection.execute(_SETTINGS, values)
            try:
                with translated():
                    taken = connection.execute(_QUEUE, values | {"wait": milliseconds(TABLE_SECONDS)}).fetchone()
            except RowsBusyError:
                connection.rollback()
                return None
    holder: int | None = taken[-1]
    return holder


class PostgresLock:
    """A held lock. Every write is guarded; what does not fit is rolled back to where the lock was taken."""

    def __init__(self, connection: Connection, dataset_type: sql.SQL, log_type: sql.SQL) -> None:
        self._connection = connection
        self._types = (dataset_type.as_string(), log_type.as_string())
        self._reserved = False

    def alive(self) -> None:
        """Ask the connection itself. Raises LockLostError."""
        with _or_lost(self._connection):
            self._connection.execute("SELECT 1")

    def flip(self, claimed: Claimed, flip: Flip) -> Written:
        """Column, log rows and ledger change together, or nothing does."""
        return self._committed(self._write_flip(claimed, flip))

    def reserve(self, claimed: Claimed, flip: Flip, *, idle_seconds: float) -> Written | None:
        """The whole flip but for its commit, and a short leash for the connection."""
        refused = self._write_flip(claimed, flip)
        if refused is None:
            self._reserved = True
            with _or_lost(self._connection):
                # Outside of a pipeline, see ``hold``; a rollback to the savepoint takes it back, too.
                self._run(_IDLE, {"idle": f"{int(idle_seconds * 1000)}ms"})
        return refused

    def commit(self) -> None:
        """COMMIT, and no other statement."""
        with _or_lost(self._connection):
            self._connection.commit()

    def give_back(self) -> None:
        """To where the lock was taken."""
        if self._reserved:
            with _or_lost(self._connection):
                self._connection.execute("ROLLBACK TO SAVEPOINT ready")
            self._reserved = False

    def _write_flip(self, claimed: Claimed, flip: Flip) -> Written | None:
        values = self._values(claimed, State.QUEUED, flip.left, flip.live) | {
            "before": flip.before,
            "after": flip.after,
            "to": flip.state.value,
            "namespace": ".".join(flip.live.namespace),
            "uuid": flip.table_uuid,
            "location": flip.old_location,
            "sequence": flip.old_sequence_number,
            "snapshot": flip.snapshot_id,
            "rows": flip.row_count,
            "grace": flip.grace_seconds,
            "entries": list(flip.entry_ids),
            "event": "flipped",
            "letter": "b" if flip.state is State.FLIPPED else "c",
            "detail": _detail(
                live=str(flip.live),
                location=flip.old_location,
                snapshot_id=flip.snapshot_id,
                warnings=list(flip.warnings) or None,
            ),
        }
        column = _COLUMN_HELD if flip.before == flip.after else _COLUMN
        # The dataset's own row last: the log of one dataset may take seconds, and other programs need this row.
        before = (_DATASETS, _SYNC_LOG, _LOG_ROWS, _LOG, _KEPT)
        return self._write(values, before, _FLIPPED, (_DATASET_ROW,), column=column)

    def finish(self, claimed: Claimed, live: TableIdentifier, left: TableIdentifier) -> Written:
        """``done``, and the log rows of late writers."""
        values = self._values(claimed, State.FLIPPED, left, live) | {
            "event": "done",
            "letter": "d",
            "detail": _detail(withdrawn=str(left)),
        }
        again = claimed.move.given_up is not None and claimed.move.direction is Direction.BACK
        before = (_SYNC_LOG, _LOG_ROWS, _LOG)
        return self._committed(self._write(values, before, _DONE, (_PLANNED_AGAIN,) if again else ()))

    def end(self, claimed: Claimed, outcome: Outcome) -> bool:
        """Write the end of an attempt that did not reach the next state."""
        move = claimed.move
        values: dict[str, Any] = {"dataset": move.dataset_id, "claim": move.claim, "from": move.state.value}
        match outcome:
            case Done() | Ignored():
                return False
            case Park(code, why, remedy, beside):
                letter = "e" if move.state is State.QUEUED else "f"
                values |= {"code": code.value, "why": why, "remedy": remedy, "event": "parked", "letter": letter}
                values["beside"] = beside
                values["detail"] = _detail(code=code.value, why=why)
                ledger = _PARKED
            case Busy(after, why) | Wait(after, why) | Retry(after, why):
                event = type(outcome).__name__.lower()
                busy = isinstance(outcome, Busy)
                values |= {"after": after, "why": why, "busy": busy, "event": event, "letter": None}
                values |= {"refund": 0 if isinstance(outcome, Retry) else 1}
                values["detail"] = _detail(after=after, why=why, attempts=move.attempts)
                ledger = _LATER
        return self._committed(self._write(values, (), ledger)) is Written.COMMITTED

    def _values(self, claimed: Claimed, state: State, left: TableIdentifier, live: TableIdentifier) -> dict[str, Any]:
        return {
            "dataset": claimed.move.dataset_id,
            "claim": claimed.move.claim,
            "from": state.value,
            "old": ".".join(left.namespace) + ".",
            "new": ".".join(live.namespace) + ".",
        }

    def _write(
        self,
        values: dict[str, Any],
        before: tuple[str, ...],
        ledger: str,
        after: tuple[str, ...] = (),
        *,
        column: str | None = None,
    ) -> Written | None:
        """All of it in the lock's transaction, counted; None where it can be committed, else nothing was done."""
        self.give_back()
        connection = self._connection
        with _or_lost(connection):
            try:
                with translated(), connection.pipeline():
                    connection.execute("SAVEPOINT ready")
                    for statement in before:
                        self._run(statement, values)
                    noted = _EVENT + (_NEWS if ledger is _LATER else "")
                    change = (
                        f"WITH changed AS ({ledger} RETURNING dataset_id, claim, state, worker), noted AS ({noted})"
                        " SELECT FROM changed"
                    )
                    changed = self._run(change, values)
                    for statement in after:
                        self._run(statement, values)
                    placed = self._run(column, values) if column else None
            except RowsBusyError:
                connection.execute("ROLLBACK TO SAVEPOINT ready")
                return Written.ROWS_BUSY
            # The counts are known only now that the pipeline has synced; a COMMIT inside it would have come too early.
            refused = _refusal(placed, changed)
            if refused is not None:
                connection.execute("ROLLBACK TO SAVEPOINT ready")
            return refused

    def _committed(self, refused: Written | None) -> Written:
        if refused is None:
            self.commit()
        return refused or Written.COMMITTED

    def _run(self, statement: str, values: dict[str, Any]) -> Any:
        return self._connection.execute(_rendered(statement, *self._types), values)


@cache
def _rendered(statement: str, dataset_type: str, log_type: str) -> bytes:
    """The statement with the ids' types in it, which Postgres itself has named. Composed once per process."""
    return statement.format(dataset_type=dataset_type, log_type=log_type).encode()


def _refusal(placed: Any, changed: Any) -> Written | None:
    if changed.rowcount != 1:
        return Written.SUPERSEDED
    if placed is not None and placed.rowcount != 1:
        return Written.COLUMN_SET
    return None


@contextmanager
def _or_lost(connection: Connection) -> Iterator[None]:
    """A broken connection is a lost lock. After a COMMIT without an answer the ledger itself says how it went.

    It is closed: one that still answers, but takes no writes any more, would lose every lock that follows.
    """
    try:
        with translated():
            yield
    except ControlPlaneAwayError as error:
        connection.close()
        raise LockLostError(str(error)) from error


def _detail(**values: Any) -> str:
    return json.dumps({key: value for key, value in values.items() if value is not None})
