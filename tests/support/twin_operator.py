"""What an operator orders, on the in-memory control plane: retry, revert, resolve.

The same rows change as by ``worker.controlplane.operations`` and ``worker.controlplane.reversal``; the contract suite
holds both together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.controlplane.reversal import Diverged, Keep, beside_live, new_place
from worker.identifiers import TableIdentifier
from worker.moves.machine import Direction, State
from worker.outcome import ParkCode

if TYPE_CHECKING:
    from tests.support.twins import MoveRow, PlaneTwin


@dataclass
class OperatorTwin:
    """Somebody at the command line. Each command is false where the row is not in a state for it."""

    plane: PlaneTwin

    def retry(self, dataset_id: str) -> bool:
        """Try what is parked again, from where it was."""
        row = self.plane.moves[dataset_id]
        if row.state is not State.PARKED:
            return False
        flipped = row.flipped_at is not None
        return self._turn(row, State.FLIPPED if flipped else State.QUEUED, "h" if flipped else "g")

    def revert(self, dataset_id: str) -> bool:
        """Take a move back that is flipped or done."""
        row = self.plane.moves[dataset_id]
        if row.state not in {State.FLIPPED, State.DONE} or row.direction is not Direction.OUT:
            return False
        row.direction = Direction.BACK
        row.flipped_at = row.done_at = row.given_up = None
        return self._turn(row, State.QUEUED, "i")

    def resolve(self, dataset_id: str, *, keep_new: bool, lost_location: str) -> bool:
        """Keep one side of a divergence: *new* is where the direction goes to. The other may lose ``lost_location``."""
        row = self.plane.moves[dataset_id]
        if row.state is not State.PARKED or row.park_code != ParkCode.DIVERGED:
            return False
        sides, keep = self.sides(dataset_id), Keep.NEW if keep_new else Keep.OLD
        if sides.only not in {None, keep}:
            return False
        row.given_up = lost_location
        row.turned = row.flipped_at is not None and not keep_new
        row.target_namespace = new_place(sides, keep) or row.target_namespace
        if keep_new and sides.only is None:
            row.old_location = lost_location
        if row.flipped_at is None:
            return self._turn(row, State.QUEUED, "g")
        if keep_new:
            return self._turn(row, State.FLIPPED, "h")
        row.direction = Direction.BACK if row.direction is Direction.OUT else Direction.OUT
        row.flipped_at = None
        return self._turn(row, State.QUEUED, "i")

    def sides(self, dataset_id: str) -> Diverged:
        """The two names that have diverged."""
        row = self.plane.moves[dataset_id]
        names = [TableIdentifier.within(each, row.table_name) for each in (row.source_namespace, row.target_namespace)]
        old, new = names if row.direction is Direction.OUT else reversed(names)
        flipped = row.flipped_at is not None
        found = Diverged(dataset_id, row.claim, row.direction, flipped, old, new, row.workspace_id)
        return beside_live(found, row.park_beside)

    def _turn(self, row: MoveRow, state: State, letter: str) -> bool:
        self.plane.note(row.dataset_id, letter, row.state, state)
        row.state = state
        row.claim += 1
        row.attempts = row.busy_count = 0
        row.busy_since = row.published_at = row.attempt_started_at = None
        row.worker = row.waiting_for = row.park_code = row.park_text = row.park_remedy = None
        row.not_before = self.plane.now
        return True
