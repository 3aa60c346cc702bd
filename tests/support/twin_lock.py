"""The held lock of the in-memory control plane: what is written on its connection, all or nothing.

Like the server, it forgets everything that was not committed when the connection is lost, and ends a transaction that
was idle too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.moves.machine import Direction, State
from worker.moves.ports import Action, Claimed, Closed, Flip, Lock, LockLostError, Written
from worker.outcome import Busy, Done, Ignored, Outcome, Park, Retry, Wait

if TYPE_CHECKING:
    from tests.support.twins import LogRow, MoveRow, PlaneTwin
    from worker.identifiers import TableIdentifier

IDLE_MARGIN = 30.0
OPEN_RENAME_SECONDS = 10.0
RESERVED = ("moves", "pointers", "iceberg_sync_log", "datasets")
"""The tables whose rows a flip has written: whoever else writes them waits."""


class LockTwin(Lock):
    """A held lock. See ``worker.moves.ports.Lock`` for every method."""

    def __init__(self, plane: PlaneTwin, dataset_id: str, attempt_seconds: float) -> None:
        self._plane = plane
        self._dataset = dataset_id
        self._idle_seconds = attempt_seconds + IDLE_MARGIN
        self._long_idle = self._idle_seconds
        self._asked_at = plane.now
        self.reserved: Flip | None = None
        """What was written and not committed."""
        self.node_lost = False
        """The machine is gone and says no good-bye: the lock stays until the server's patience ends."""

    @property
    def held(self) -> bool:
        """Whether the transaction still lives."""
        return self._plane.locks.get(self._dataset) is self

    def cut(self) -> None:
        """Lose the connection."""
        self._plane.release(self)

    def end_if_idle(self) -> None:
        """What the server does to a transaction that says nothing for too long."""
        if self._plane.now - self._asked_at > self._idle_seconds:
            self.cut()

    def alive(self) -> None:
        if not self.held:
            raise LockLostError("the connection is closed")
        self._asked_at = self._plane.now

    def reserve(self, claimed: Claimed, flip: Flip, *, idle_seconds: float) -> Written | None:
        refused = self._flip_refused(claimed, flip)
        if refused is None:
            self.reserved, self._long_idle, self._idle_seconds = flip, self._idle_seconds, idle_seconds
            for table in RESERVED:
                self._plane.rows_held[table, self._dataset] = self
        return refused

    def commit(self) -> None:
        self.alive()
        assert self.reserved is not None
        self._flip(self.reserved)

    def give_back(self) -> None:
        if self.reserved is None:
            return
        self.alive()
        self.reserved, self._idle_seconds = None, self._long_idle
        for table in RESERVED:
            self._plane.rows_held.pop((table, self._dataset), None)

    def flip(self, claimed: Claimed, flip: Flip) -> Written:
        refused = self._flip_refused(claimed, flip)
        if refused is not None:
            return refused
        self._flip(flip)
        return Written.COMMITTED

    def _flip_refused(self, claimed: Claimed, flip: Flip) -> Written | None:
        self.alive()
        self.give_back()
        if self._rows_busy(flip.left, "datasets", "iceberg_sync_log"):
            return Written.ROWS_BUSY
        return self._refusal(claimed, State.QUEUED, flip)

    def _flip(self, flip: Flip) -> None:
        plane, row = self._plane, self._plane.moves[self._dataset]
        plane.datasets[self._dataset].iceberg_namespace = flip.after
        self._rewrite_log(flip.left, flip.live)
        for pointer in plane.pointers:
            if pointer.entry.id in flip.entry_ids and pointer.outcome is None:
                pointer.outcome = Closed.KEPT
        if row.direction is Direction.OUT:
            row.target_namespace = ".".join(flip.live.namespace)
        row.table_uuid, row.old_location = flip.table_uuid, flip.old_location
        row.old_sequence_number = flip.old_sequence_number
        row.attempts, row.published_at = 0, None
        row.flipped_at = row.resolver_changed_at = plane.now
        row.done_at = plane.now if flip.state is State.DONE else None
        row.not_before = plane.now + flip.grace_seconds
        self._end(row, flip.state, "b" if flip.state is State.FLIPPED else "c")

    def finish(self, claimed: Claimed, live: TableIdentifier, left: TableIdentifier) -> Written:
        self.alive()
        self.give_back()
        if self._rows_busy(left, "iceberg_sync_log"):
            return Written.ROWS_BUSY
        refused = self._refusal(claimed, State.FLIPPED, None)
        if refused is not None:
            return refused
        row = self._plane.moves[self._dataset]
        self._rewrite_log(left, live)
        row.done_at = self._plane.now
        again = row.given_up is not None and row.turned and row.direction is Direction.BACK
        row.given_up = None
        self._end(row, State.DONE, "d")
        if again:
            plan_again(self._plane, row)
        return Written.COMMITTED

    def end(self, claimed: Claimed, outcome: Outcome) -> bool:
        self.alive()
        self.give_back()
        if isinstance(outcome, Done | Ignored) or self._refusal(claimed, claimed.move.state, None) is not None:
            return False
        row, plane = self._plane.moves[self._dataset], self._plane
        if isinstance(outcome, Park):
            row.park_code, row.park_text, row.park_remedy = outcome.code, outcome.why, outcome.remedy
            row.park_beside = outcome.beside
            self._end(row, State.PARKED, "e" if row.state is State.QUEUED else "f")
            return True
        self._later(row, outcome)
        row.attempt_started_at = None
        plane.release(self)
        return True

    # Inside.

    def _later(self, row: MoveRow, outcome: Busy | Wait | Retry) -> None:
        busy = isinstance(outcome, Busy)
        renaming = any(entry.action is Action.RENAME for entry in self._plane.open_entries(self._dataset))
        row.not_before = self._plane.now + (min(outcome.after, OPEN_RENAME_SECONDS) if renaming else outcome.after)
        row.published_at, row.waiting_for = None, outcome.why
        row.attempts -= 0 if isinstance(outcome, Retry) else 1
        row.busy_count = row.busy_count + 1 if busy else 0
        since = self._plane.now if row.busy_since is None else row.busy_since
        row.busy_since = since if busy else None

    def _end(self, row: MoveRow, state: State, letter: str) -> None:
        """The next state, and the commit: the lock ends with it."""
        self._plane.note(self._dataset, letter, row.state, state)
        row.state = state
        row.busy_count, row.busy_since, row.waiting_for, row.attempt_started_at = 0, None, None, None
        self._plane.release(self)

    def _rows_busy(self, left: TableIdentifier, *tables: str) -> bool:
        """Whether another transaction holds a row that is to be written."""
        for table in tables:
            wanted = self._dataset in self._plane.datasets if table == "datasets" else self._log_rows(left)
            if wanted and self._plane.rows_held.get((table, self._dataset), self) is not self:
                return True
        return False

    def _refusal(self, claimed: Claimed, state: State, flip: Flip | None) -> Written | None:
        row = self._plane.moves.get(self._dataset)
        if row is None or (row.state, row.claim) != (state, claimed.move.claim):
            return Written.SUPERSEDED
        if flip is None:
            return None
        dataset = self._plane.datasets.get(self._dataset)
        return Written.COLUMN_SET if dataset is None or dataset.iceberg_namespace != flip.before else None

    def _log_rows(self, left: TableIdentifier) -> list[LogRow]:
        prefix = ".".join(left.namespace) + "."
        return [row for row in self._plane.log.get(self._dataset, []) if row.identifier.startswith(prefix)]

    def _rewrite_log(self, left: TableIdentifier, live: TableIdentifier) -> None:
        old, new = ".".join(left.namespace) + ".", ".".join(live.namespace) + "."
        for row in self._log_rows(left):
            row.identifier = new + row.identifier.removeprefix(old)


def plan_again(plane: PlaneTwin, row: MoveRow) -> None:
    """What a person wants moved although it was taken back: planned anew, and a new claim."""
    plane.note(row.dataset_id, "i", State.DONE, State.QUEUED)
    row.state, row.direction = State.QUEUED, Direction.OUT
    row.claim += 1
    row.attempts = 0
    row.table_uuid = row.old_location = row.old_sequence_number = row.flipped_at = row.done_at = None
    row.not_before, row.published_at = plane.now, None
