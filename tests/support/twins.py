"""In-memory twins of what ``worker.moves`` needs from the control plane: its rows, its lock, its clock.

``PlaneTwin`` is the database, ``ControlPlaneTwin`` what one worker process has of it. The contract suite runs on the
twins as it does on Postgres, so that a proof in memory says something about the real thing. Time stands still unless
``pass_time`` is called. An operator's commands are in ``twin_operator``, the held lock is in ``twin_lock``.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.support.twin_lock import LockTwin
from worker.identifiers import resolve
from worker.moves.machine import WORKABLE, Direction, State
from worker.moves.ports import (
    Action,
    Claimed,
    Closed,
    ControlPlane,
    Dataset,
    Entry,
    LockLostError,
    Move,
    Pointer,
    Strategy,
)
from worker.outcome import ParkCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.identifiers import TableIdentifier

WAREHOUSE = "w"
REPUBLISH_AFTER = 120.0
URGENT_AGAIN = 5.0
_PROBE_SECONDS = 15.0


@dataclass
class MoveRow:
    """A row of ``reroot.moves``; times are in the twin's seconds."""

    dataset_id: str
    workspace_id: str
    source_identifier: str
    table_name: str
    target_namespace: str
    warehouse: str | None = None
    state: State = State.QUEUED
    direction: Direction = Direction.OUT
    claim: int = 0
    attempts: int = 0
    busy_count: int = 0
    busy_since: float | None = None
    table_uuid: str | None = None
    old_location: str | None = None
    old_sequence_number: int | None = None
    flipped_at: float | None = None
    resolver_changed_at: float | None = None
    given_up: str | None = None
    accepted: frozenset[str] = frozenset()
    turned: bool = False
    """By a person who kept the old side of a flipped move."""
    done_at: float | None = None
    not_before: float = 0.0
    published_at: float | None = None
    urgent: bool = False
    attempt_started_at: float | None = None
    lock_holder: object | None = None
    """Who held the lock when the last attempt claimed the row."""
    worker: str | None = None
    waiting_for: str | None = None
    park_code: str | None = None
    park_text: str | None = None
    park_remedy: str | None = None
    park_beside: str | None = None

    @property
    def source_namespace(self) -> str:
        """The legacy namespace, as the planned identifier had it."""
        return self.source_identifier.removesuffix("." + self.table_name)


@dataclass
class DatasetRow:
    """A row of ``datasets``."""

    workspace_id: str
    schema_id: str | None
    iceberg_namespace: str | None = None


@dataclass
class SchemaRow:
    """A schema with its catalog."""

    workspace_id: str
    place: str


@dataclass
class LogRow:
    """A succeeded row of ``iceberg_sync_log``."""

    identifier: str
    snapshot_id: int | None


@dataclass
class PointerRow:
    """A row of ``reroot.pointers``."""

    dataset_id: str
    entry: Entry
    outcome: Closed | None = None
    opened_at: float = 0.0


@dataclass(frozen=True)
class Event:
    """A transition in ``reroot.move_events``."""

    dataset_id: str
    letter: str
    source: State | None
    target: State


@dataclass
class WarehouseRow:
    """A row of ``reroot.warehouses``."""

    strategy: Strategy | None = None
    set_by_operator: bool = False
    refused: set[str] = field(default_factory=set)
    down_until: float | None = None


@dataclass
class PlaneTwin:
    """The database: the control plane's tables, Reroot's, and every lock that is held."""

    now: float = 1_000.0
    datasets: dict[str, DatasetRow] = field(default_factory=dict)
    schemas: dict[str, SchemaRow] = field(default_factory=dict)
    log: dict[str, list[LogRow]] = field(default_factory=dict)
    moves: dict[str, MoveRow] = field(default_factory=dict)
    pointers: list[PointerRow] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    warehouses: dict[str, WarehouseRow] = field(default_factory=dict)
    locks: dict[str, object] = field(default_factory=dict)
    """Who holds the dataset's lock: a ``LockTwin``, or any other program."""
    rows_held: dict[tuple[str, str], object] = field(default_factory=dict)
    """Who holds rows of (table, dataset) in a transaction; tables are ``datasets`` and ``iceberg_sync_log``."""

    def pass_time(self, seconds: float) -> None:
        """Let time go by: the server ends transactions that were idle too long."""
        self.now += seconds
        for holder in list(self.locks.values()):
            if isinstance(holder, LockTwin):
                holder.end_if_idle()

    def release(self, holder: object) -> None:
        """End the holder's transaction: its locks and rows are free."""
        self.locks = {key: each for key, each in self.locks.items() if each is not holder}
        self.rows_held = {key: each for key, each in self.rows_held.items() if each is not holder}

    def note(self, dataset_id: str, letter: str, source: State | None, target: State) -> None:
        """Write a transition into the events."""
        self.events.append(Event(dataset_id, letter, source, target))

    def open_entries(self, dataset_id: str) -> list[Entry]:
        """The open journal entries of a dataset, oldest first."""
        return [
            replace(row.entry, opened_ago=self.now - row.opened_at)
            for row in self.pointers
            if row.dataset_id == dataset_id and row.outcome is None
        ]

    def resolved(self, dataset_id: str) -> str:
        """What the resolver says."""
        return resolve(self.datasets[dataset_id].iceberg_namespace)

    def urgent(self, dataset_id: str) -> bool:
        """Whether the journal holds an open rename, or a withdrawal in which an attempt died."""
        actions = {entry.action for entry in self.open_entries(dataset_id)}
        died = self.moves[dataset_id].attempt_started_at is not None
        return Action.RENAME in actions or (Action.WITHDRAW in actions and died)

    def abandoned(self, dataset_id: str) -> bool:
        """No attempt is at it: none has started, or the one that did does not hold the lock any more."""
        row = self.moves[dataset_id]
        return row.attempt_started_at is None or self.locks.get(dataset_id, self) is not row.lock_holder

    def askable(self, row: MoveRow, *, queue_empty: bool) -> bool:
        """Its warehouse answers, or it is the one job that asks whether it does again."""
        until = self.warehouses.get(row.warehouse or "", WarehouseRow()).down_until
        if until is None or self.urgent(row.dataset_id):
            return True
        its = [each for each in self.moves.values() if each.warehouse == row.warehouse]
        if until > self.now or any((each.published_at or 0.0) > self.now - _PROBE_SECONDS for each in its):
            return False
        waiting = [(each.not_before, each.dataset_id) for each in its if self._sendable(each, queue_empty)]
        return (row.not_before, row.dataset_id) == min(waiting)

    def to_publish(self, dataset_id: str, *, queue_empty: bool = True) -> bool:
        """Whether the sweeper would send the dataset's message now."""
        row = self.moves[dataset_id]
        return self._sendable(row, queue_empty) and self.askable(row, queue_empty=queue_empty)

    def publish(self, dataset_id: str, *, queue_empty: bool = True) -> bool:
        """Send the dataset's message as the sweeper does; whether it was sent."""
        row = self.moves[dataset_id]
        sent = self.to_publish(dataset_id, queue_empty=queue_empty)
        if sent:
            row.published_at, row.urgent = self.now, row.urgent or self.urgent(dataset_id)
        return sent

    def _sendable(self, row: MoveRow, queue_empty: bool) -> bool:
        if row.state not in WORKABLE or row.not_before > self.now or not self.abandoned(row.dataset_id):
            return False
        if row.published_at is None:
            return True
        if self.urgent(row.dataset_id):
            return row.published_at < self.now - URGENT_AGAIN
        return queue_empty and row.published_at < self.now - REPUBLISH_AFTER


@dataclass
class ControlPlaneTwin(ControlPlane):
    """What one worker process has of the control plane. See ``worker.moves.ports`` for every method."""

    plane: PlaneTwin
    worker: str = "worker-1"
    attempt_seconds: float = 60

    def peek(self, dataset_id: str) -> Move | None:
        row = self.plane.moves.get(dataset_id)
        return None if row is None else replace(self._move(row), urgent=self._urgent(row))

    def take(self, dataset_id: str) -> bool:
        row = self.plane.moves[dataset_id]
        taken, row.urgent = row.urgent, False
        return taken

    @contextmanager
    def lock(self, dataset_id: str, *, queue_for: float | None) -> Iterator[LockTwin | None]:
        """Nobody else runs while one waits in memory, so queueing for the lock is trying for it."""
        if dataset_id in self.plane.locks:
            yield None
            return
        lock = LockTwin(self.plane, dataset_id, self.attempt_seconds)
        self.plane.locks[dataset_id] = lock
        try:
            yield lock
        finally:
            if not lock.node_lost:
                self.plane.release(lock)

    def note_busy(self, move: Move, after: float) -> None:
        row = self._row(move)
        if row is not None and self.plane.abandoned(row.dataset_id):
            row.busy_count += 1
            row.busy_since = self.plane.now if row.busy_since is None else row.busy_since
            row.urgent, row.published_at, row.waiting_for = False, None, "the dataset's lock"
            row.not_before = self.plane.now + after

    def claim(self, move: Move) -> Claimed | None:
        row = self._row(move)
        if row is None:
            return None
        row.claim += 1
        row.attempts += 1
        row.attempt_started_at, row.worker, row.published_at = self.plane.now, self.worker, None
        row.urgent, row.lock_holder = False, self.plane.locks.get(row.dataset_id)
        row.warehouse = WAREHOUSE
        warehouse = self.plane.warehouses.get(WAREHOUSE, WarehouseRow())
        away_for, probing = self._may_ask(warehouse)
        return Claimed(
            self._move(row),
            self._dataset(row),
            tuple(self.plane.open_entries(row.dataset_id)),
            away_for,
            probing,
            warehouse.strategy,
            warehouse.set_by_operator,
        )

    def journal(self, claimed: Claimed, action: Action, pointer: Pointer) -> Entry:
        plane, dataset = self.plane, claimed.move.dataset_id
        row = plane.moves.get(dataset)
        if row is None or row.claim != claimed.move.claim:
            raise LockLostError("the claim was taken over: nothing more is begun")
        row.table_uuid = row.table_uuid or pointer.table_uuid
        entry = Entry(len(plane.pointers) + 1, action, pointer)
        plane.pointers.append(PointerRow(dataset, entry, opened_at=plane.now))
        return entry

    def close(self, entry: Entry, how: Closed) -> None:
        row = self.plane.pointers[entry.id - 1]
        holder = self.plane.rows_held.get(("pointers", row.dataset_id))
        waits = isinstance(holder, LockTwin) and holder.reserved is not None and entry.id in holder.reserved.entry_ids
        assert not waits, f"{entry} is closed while the flip that closes it too is not committed: both wait for ever"
        row.outcome = row.outcome or how

    def open_entries(self, claimed: Claimed) -> tuple[Entry, ...]:
        return tuple(self.plane.open_entries(claimed.move.dataset_id))

    def was_unreadable(self, claimed: Claimed, identifier: TableIdentifier) -> bool:
        return any(
            row.outcome is Closed.UNREADABLE and row.entry.pointer.identifier == identifier
            for row in self.plane.pointers
            if row.dataset_id == claimed.move.dataset_id
        )

    def live_namespace(self, claimed: Claimed) -> str | None:
        dataset = claimed.move.dataset_id
        return self.plane.resolved(dataset) if dataset in self.plane.datasets else None

    def note_refusal(self, claimed: Claimed) -> int:
        seen = self._warehouse(claimed.dataset.warehouse).refused
        seen.add(claimed.move.dataset_id)
        return len(seen)

    def note_strategy(self, warehouse: str, strategy: Strategy, reason: str) -> None:
        row = self._warehouse(warehouse)
        if not row.set_by_operator:
            row.strategy = strategy

    def warehouse_away(self, warehouse: str, after: float, why: str) -> None:
        self._warehouse(warehouse).down_until = self.plane.now + after

    def warehouse_back(self, warehouse: str) -> None:
        self._warehouse(warehouse).down_until = None

    # Inside.

    def _row(self, move: Move) -> MoveRow | None:
        """The peeked row, where nothing has happened to it since."""
        row = self.plane.moves.get(move.dataset_id)
        return row if row is not None and (row.claim, row.state) == (move.claim, move.state) else None

    def _urgent(self, own: MoveRow) -> str | None:
        rows = [own] if own.urgent else [row for row in self.plane.moves.values() if row.urgent]
        return min(rows, key=lambda row: row.not_before).dataset_id if rows else None

    def _warehouse(self, warehouse: str) -> WarehouseRow:
        return self.plane.warehouses.setdefault(warehouse, WarehouseRow())

    def _may_ask(self, warehouse: WarehouseRow) -> tuple[float | None, bool]:
        if warehouse.down_until is None:
            return None, False
        if warehouse.down_until > self.plane.now:
            return warehouse.down_until - self.plane.now, False
        warehouse.down_until = self.plane.now + _PROBE_SECONDS
        return None, True

    def _move(self, row: MoveRow) -> Move:
        changed = row.resolver_changed_at
        return Move(
            dataset_id=row.dataset_id,
            workspace_id=row.workspace_id,
            state=row.state,
            direction=row.direction,
            claim=row.claim,
            attempts=row.attempts,
            busy_count=row.busy_count,
            table_name=row.table_name,
            source_namespace=row.source_namespace,
            target_namespace=row.target_namespace,
            table_uuid=row.table_uuid,
            old_location=row.old_location,
            old_sequence_number=row.old_sequence_number,
            given_up=row.given_up,
            accepted=row.accepted,
            target_named_ago=None if changed is None else self.plane.now - changed,
            due=row.not_before <= self.plane.now,
            running=row.attempt_started_at is not None,
        )

    def _dataset(self, row: MoveRow) -> Dataset:
        dataset = self.plane.datasets.get(row.dataset_id)
        schema = self.plane.schemas.get((dataset and dataset.schema_id) or "")
        no_place = None
        if schema is None:
            no_place = ParkCode.NO_PLACE
        elif dataset is not None and {dataset.workspace_id, schema.workspace_id} != {row.workspace_id}:
            no_place = ParkCode.WORKSPACE_MISMATCH
        log = self.plane.log.get(row.dataset_id, [])
        return Dataset(
            exists=dataset is not None,
            iceberg_namespace=dataset.iceberg_namespace if dataset else None,
            place=schema.place if schema and not no_place else None,
            no_place=no_place,
            warehouse=WAREHOUSE,
            last_snapshot_id=log[-1].snapshot_id if log else None,
            last_identifier=log[-1].identifier if log else None,
        )
