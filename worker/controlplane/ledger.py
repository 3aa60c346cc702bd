"""The ledger as an attempt uses it: peek, claim, and what is noted beside the lock.

Responsible for: the two connections of a worker process and every statement that an attempt commits at once.
Must not know: the protocol (``worker.moves``), what is written on the lock's connection (``lock``).
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql
from psycopg.pq import TransactionStatus

from worker.controlplane import journal
from worker.controlplane.connection import Connection, ControlPlaneAwayError, column_type, connect, translated
from worker.controlplane.living import LIVING
from worker.controlplane.lock import PostgresLock, hold
from worker.identifiers import LEGACY_NAMESPACE
from worker.moves.machine import Direction, State
from worker.moves.ports import Action, Claimed, Closed, Dataset, Entry, Move, Pointer, Strategy
from worker.outcome import ParkCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.identifiers import TableIdentifier

_MOVE: Final = """
    m.dataset_id, m.workspace_id, m.state, m.direction, m.claim, m.attempts, m.busy_count, m.table_name,
    m.source_identifier, m.target_namespace, m.table_uuid, m.old_location, m.old_sequence_number, m.given_up,
    m.accepted, extract(epoch FROM clock_timestamp() - m.resolver_changed_at)::float8,
    m.not_before <= now(), m.attempt_started_at IS NOT NULL
"""
_MOVE_COLUMNS: Final = 18

PEEK: Final = f"""
SELECT {_MOVE},
       CASE WHEN m.urgent THEN m.dataset_id
       ELSE (SELECT u.dataset_id FROM reroot.moves u WHERE u.urgent ORDER BY u.not_before LIMIT 1) END
FROM reroot.moves m WHERE m.dataset_id = %s
"""
"""The index of urgent rows is nearly always empty."""

_TAKE: Final = "UPDATE reroot.moves SET urgent = false WHERE dataset_id = %s AND urgent"

_CLAIM: Final = """
WITH m AS (
    UPDATE reroot.moves
    SET claim = claim + 1, attempts = attempts + 1, attempt_started_at = clock_timestamp(), worker = %(worker)s,
        lock_pid = %(holder)s, published_at = NULL, urgent = false,
        updated_at = clock_timestamp(),
        warehouse = coalesce((SELECT t.warehouse FROM reroot.tenants t WHERE t.workspace_id = moves.workspace_id),
                             %(warehouse)s)
    WHERE dataset_id = %(dataset)s AND claim = %(claim)s AND state = %(state)s
    RETURNING *
)
SELECT {move},
       d.id IS NOT NULL, d.workspace_id::text, d.iceberg_namespace, d.schema_id IS NOT NULL, c.workspace_id::text,
       c.slug, s.slug, m.warehouse, l.snapshot_id, l.iceberg_table,
       extract(epoch FROM w.down_until - clock_timestamp())::float8, w.strategy, coalesce(w.set_by_operator, false),
       {entries}, set_config('synchronous_commit', 'off', true)
FROM m
LEFT JOIN datasets d ON d.id = %(dataset)s::{dataset_type}
LEFT JOIN schemas s ON s.id = d.schema_id
LEFT JOIN catalogs c ON c.id = s.catalog_id
LEFT JOIN reroot.warehouses w ON w.warehouse = m.warehouse
LEFT JOIN LATERAL (
    SELECT snapshot_id, iceberg_table FROM iceberg_sync_log
    WHERE dataset_id = %(dataset)s::{log_type} AND status = 'succeeded'
    ORDER BY finished_at DESC NULLS LAST, id DESC LIMIT 1
) l ON true
"""
"""Committed without waiting for the disk. The journal's entry and the flip do wait, and take the claim along; a crash
of Postgres before them ends the lock's connection too, and is a process that died before its claim."""

_NAMESPACE: Final = "SELECT iceberg_namespace FROM datasets WHERE id = %s::{dataset_type}"

_BUSY: Final = f"""
UPDATE reroot.moves
SET busy_count = busy_count + 1, busy_since = coalesce(busy_since, clock_timestamp()), published_at = NULL,
    urgent = false, not_before = clock_timestamp() + make_interval(secs => %(after)s),
    waiting_for = 'the dataset''s lock', updated_at = clock_timestamp()
WHERE dataset_id = %(dataset)s AND claim = %(claim)s AND state = %(state)s
  AND (attempt_started_at IS NULL OR NOT {LIVING})
"""

_AWAY: Final = """
INSERT INTO reroot.warehouses AS w (warehouse, down_since, down_until, down_reason)
VALUES (%(warehouse)s, now(), now() + make_interval(secs => %(after)s), %(why)s)
ON CONFLICT (warehouse) DO UPDATE
SET down_since = coalesce(w.down_since, excluded.down_since), down_until = excluded.down_until,
    down_reason = excluded.down_reason, updated_at = now()
"""

_BACK: Final = """
UPDATE reroot.warehouses SET down_since = NULL, down_until = NULL, down_reason = NULL, updated_at = now()
WHERE warehouse = %s
"""

_REFUSED: Final = """
INSERT INTO reroot.warehouses AS w (warehouse, refused) VALUES (%(warehouse)s, ARRAY[%(dataset)s])
ON CONFLICT (warehouse) DO UPDATE
SET refused = CASE WHEN %(dataset)s = ANY (w.refused) THEN w.refused ELSE w.refused || %(dataset)s::text END
RETURNING cardinality(refused)
"""

_STRATEGY: Final = """
INSERT INTO reroot.warehouses AS w (warehouse, strategy, reason) VALUES (%(warehouse)s, %(strategy)s, %(reason)s)
ON CONFLICT (warehouse) DO UPDATE SET strategy = excluded.strategy, reason = excluded.reason, updated_at = now()
WHERE NOT w.set_by_operator AND w.strategy IS DISTINCT FROM excluded.strategy
"""

_PROBE: Final = """
UPDATE reroot.warehouses SET down_until = now() + make_interval(secs => %(after)s)
WHERE warehouse = %(warehouse)s AND down_until <= clock_timestamp()
"""

_PROBE_SECONDS: Final = 15.0

_STATEMENT_SECONDS: Final = 30.0
"""For one statement on the second connection; on the lock's each attempt says it anew."""


class PostgresControlPlane:
    """The control plane, for one worker process. Connections open at first use and again after a loss.

    ``warehouse_for`` gives a workspace's warehouse where ``reroot.tenants`` has none. ``attempt_seconds`` bounds how
    long the lock's transaction may sit idle before the server ends it, so that a lost node does not keep the lock.
    """

    def __init__(self, url: str, *, worker: str, warehouse_for: Callable[[str], str], attempt_seconds: float) -> None:
        self._url = url
        self._worker = worker
        self._warehouse_for = warehouse_for
        self._attempt_seconds = attempt_seconds
        self._second: Connection | None = None
        self._locks: Connection | None = None
        self._holder: int | None = None
        """The backend that holds the lock of the attempt under way."""
        self._types: dict[str, sql.SQL] = {}

    def disconnect(self) -> None:
        """Close both connections."""
        for connection in (self._second, self._locks):
            if connection is not None:
                connection.close()
        self._second = self._locks = None

    def warm_up(self) -> None:
        """Open both connections now. Raises ControlPlaneError."""
        self._fresh_second()
        self._fresh_locks()

    def peek(self, dataset_id: str) -> Move | None:
        """See ``worker.moves.ports.ControlPlane``, as for every method below."""
        try:
            row = self._one(PEEK, (dataset_id,))
        except ControlPlaneAwayError:
            row = self._one(PEEK, (dataset_id,))  # an idle connection may have died long ago: ask once on a new one
        return None if row is None else replace(_move(row), urgent=row[_MOVE_COLUMNS])

    def take(self, dataset_id: str) -> bool:
        """The mark is gone then: should this process die before its claim, the sweeper sets it again."""
        return bool(self._execute(_TAKE, (dataset_id,)))

    @contextmanager
    def lock(self, dataset_id: str, *, queue_for: float | None) -> Iterator[PostgresLock | None]:
        """The lock's transaction: it ends with the context, committed or not."""
        connection = self._fresh_locks()
        try:
            self._holder = hold(connection, dataset_id, queue_for=queue_for, idle_seconds=self._attempt_seconds)
        except ControlPlaneAwayError:
            connection = self._fresh_locks()
            self._holder = hold(connection, dataset_id, queue_for=queue_for, idle_seconds=self._attempt_seconds)
        try:
            held = self._holder is not None
            yield PostgresLock(connection, self._type("datasets"), self._type("iceberg_sync_log")) if held else None
        finally:
            self._holder = None
            with suppress(Exception):  # a connection that is gone has rolled back by itself
                connection.rollback()

    def note_busy(self, move: Move, after: float) -> None:
        """Only where nothing of ours has happened to the row since the peek."""
        self._execute(
            _BUSY, {"dataset": move.dataset_id, "claim": move.claim, "state": move.state.value, "after": after}
        )

    def claim(self, move: Move) -> Claimed | None:
        """One statement claims the row and reads the dataset, its place, its warehouse and its open entries."""
        query = sql.SQL(_CLAIM).format(
            move=sql.SQL(_MOVE),
            entries=sql.SQL(journal.ENTRIES_OF),
            dataset_type=self._type("datasets"),
            log_type=self._type("iceberg_sync_log"),
        )
        row = self._one(
            query,
            {
                "dataset": move.dataset_id,
                "claim": move.claim,
                "state": move.state.value,
                "worker": self._worker,
                "holder": self._holder,
                "warehouse": self._warehouse_for(move.workspace_id),
            },
        )
        if row is None:
            return None
        claimed = _move(row)
        down_for, strategy, strategy_set, open_entries, _ = row[_MOVE_COLUMNS + 10 :]
        dataset = _dataset(row[_MOVE_COLUMNS:], claimed.workspace_id)
        away_for, probing = self._may_ask(dataset.warehouse, down_for)
        known = None if strategy is None else Strategy(strategy)
        return Claimed(claimed, dataset, journal.entries(open_entries), away_for, probing, known, strategy_set)

    def journal(self, claimed: Claimed, action: Action, pointer: Pointer) -> Entry:
        """Committed when this returns."""
        with self._on_second() as connection:
            return journal.open_entry(connection, claimed, action, pointer)

    def close(self, entry: Entry, how: Closed) -> None:
        """Committed when this returns; the first end of an entry stays."""
        with self._on_second() as connection:
            journal.close_entry(connection, entry, how)

    def open_entries(self, claimed: Claimed) -> tuple[Entry, ...]:
        """Read afresh, on the second connection."""
        row = self._one("SELECT " + journal.ENTRIES_OF, {"dataset": claimed.move.dataset_id})
        return journal.entries(row[0])

    def was_unreadable(self, claimed: Claimed, identifier: TableIdentifier) -> bool:
        """From the journal."""
        with self._on_second() as connection:
            return journal.was_unreadable(connection, claimed, identifier)

    def live_namespace(self, claimed: Claimed) -> str | None:
        """Asked afresh, on the second connection."""
        query = sql.SQL(_NAMESPACE).format(dataset_type=self._type("datasets"))
        row = self._one(query, (claimed.move.dataset_id,))
        return None if row is None else row[0] or LEGACY_NAMESPACE

    def note_refusal(self, claimed: Claimed) -> int:
        """The datasets of the warehouse that saw it, this one included."""
        row = self._one(_REFUSED, {"warehouse": claimed.dataset.warehouse, "dataset": claimed.move.dataset_id})
        return int(row[0])

    def note_strategy(self, warehouse: str, strategy: Strategy, reason: str) -> None:
        """Nothing changes where an operator has spoken."""
        self._execute(_STRATEGY, {"warehouse": warehouse, "strategy": strategy.value, "reason": reason})

    def warehouse_away(self, warehouse: str, after: float, why: str) -> None:
        """Every job of the warehouse waits until then, and one of them asks again."""
        self._execute(_AWAY, {"warehouse": warehouse, "after": after, "why": why})

    def warehouse_back(self, warehouse: str) -> None:
        """The probe was answered."""
        self._execute(_BACK, (warehouse,))

    def _may_ask(self, warehouse: str, down_for: float | None) -> tuple[float | None, bool]:
        """(seconds to wait or None, whether this attempt is the probe)."""
        if down_for is None:
            return None, False
        if down_for > 0:
            return down_for, False
        chosen = self._execute(_PROBE, {"warehouse": warehouse, "after": _PROBE_SECONDS})
        return (None, True) if chosen else (_PROBE_SECONDS, False)

    def _type(self, table: str) -> sql.SQL:
        if table not in self._types:
            with self._on_second() as connection:
                self._types[table] = column_type(connection, table, "id" if table == "datasets" else "dataset_id")
        return self._types[table]

    def _one(self, query: Any, parameters: Any) -> Any:
        with self._on_second() as connection:
            return connection.execute(query, parameters).fetchone()

    def _execute(self, query: Any, parameters: Any) -> int:
        with self._on_second() as connection:
            return connection.execute(query, parameters).rowcount

    @contextmanager
    def _on_second(self) -> Iterator[Connection]:
        connection = self._fresh_second()
        try:
            with translated():
                yield connection
        except ControlPlaneAwayError:
            # The other one goes, too: after a failover it may still be held by the server that was, and a lock that
            # is taken there is nobody else's.
            self.disconnect()
            raise

    def _fresh_second(self) -> Connection:
        if self._second is None or self._second.closed:
            self._second = connect(self._url, role="ledger", prepare=True, statement_seconds=_STATEMENT_SECONDS)
        return self._second

    def _fresh_locks(self) -> Connection:
        connection = self._locks
        if connection is not None and not connection.closed:
            if connection.info.transaction_status is TransactionStatus.IDLE:
                return connection
            connection.close()  # what an interrupted attempt left half done is rolled back by the server
        self._locks = connect(self._url, role="lock", autocommit=False, prepare=True)
        return self._locks


def _move(row: Any) -> Move:
    (
        dataset_id, workspace_id, state, direction, claim, attempts, busy_count, table_name,
        source_identifier, target_namespace, table_uuid, old_location, old_sequence_number, given_up,
        accepted, changed_ago, due, running,
    ) = row[:_MOVE_COLUMNS]  # fmt: skip
    return Move(
        dataset_id=dataset_id,
        workspace_id=workspace_id,
        state=State(state),
        direction=Direction(direction),
        claim=claim,
        attempts=attempts,
        busy_count=busy_count,
        table_name=table_name,
        source_namespace=source_identifier.removesuffix("." + table_name),
        target_namespace=target_namespace,
        table_uuid=table_uuid,
        old_location=old_location,
        old_sequence_number=old_sequence_number,
        given_up=given_up,
        accepted=frozenset(accepted),
        target_named_ago=changed_ago,
        due=due,
        running=running,
    )


def _dataset(row: Any, planned_workspace: str) -> Dataset:
    exists, workspace, namespace, has_schema, catalog_workspace, catalog, schema, warehouse, snapshot, logged, *_ = row
    no_place: ParkCode | None = None
    if not has_schema or catalog is None or schema is None:
        no_place = ParkCode.NO_PLACE
    elif workspace not in {catalog_workspace, None} or workspace != planned_workspace:
        no_place = ParkCode.WORKSPACE_MISMATCH
    return Dataset(
        exists=exists,
        iceberg_namespace=namespace,
        place=None if no_place else f"{catalog}.{schema}",
        no_place=no_place,
        warehouse=warehouse,
        last_snapshot_id=snapshot,
        last_identifier=logged,
    )
