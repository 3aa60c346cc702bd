"""The flip, as both strategies make it.

Responsible for: what the flip says, and how an attempt ends by its answer.
Must not know: how the new name came to be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.moves.machine import State
from worker.moves.ports import Action, Flip, Written
from worker.outcome import Busy, Done, Outcome, Retry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.lakehouse.port import Table
    from worker.moves.goal import Goal
    from worker.moves.job import Job


def flip_of(job: Job, goal: Goal, standing: Table, left: Table, state: State, entry_ids: Sequence[int]) -> Flip:
    """The flip to ``standing``, the table under the new name; ``left`` is the one under the name that is left."""
    strays = _strays(job, goal, state)
    made = [e.id for e in job.open(Action.REGISTER, Action.RENAME) if e.pointer.identifier == goal.target]
    return Flip(
        before=goal.before,
        after=goal.after,
        left=goal.source,
        live=goal.target,
        state=state,
        table_uuid=standing.uuid,
        old_location=left.metadata_location,
        old_sequence_number=left.sequence_number,
        snapshot_id=standing.snapshot_id,
        row_count=standing.row_count,
        grace_seconds=job.policy.grace_seconds,
        entry_ids=tuple({*made, *entry_ids, *strays}),
        warnings=tuple(job.warnings),
    )


def _strays(job: Job, goal: Goal, state: State) -> list[int]:
    """What the flip closes as well: renames to other names, and where nothing comes after, registrations, too.

    Not before the flip is committed: such a request may still be on its way, and only its entry says where it went.
    """
    actions = {Action.RENAME, Action.REGISTER} if state is State.DONE else {Action.RENAME}
    return [entry.id for entry in job.open(*actions) if entry.pointer.identifier != goal.target]


def flip(job: Job, flip: Flip) -> Outcome:
    """Flip, and how the attempt ends by that. Raises LockLostError."""
    written = job.lock.flip(job.claimed, flip)
    return Done(flip.state) if written is Written.COMMITTED else refused(job, written)


def refused(job: Job, written: Written) -> Outcome:
    """How an attempt ends whose flip, or the rows for it, were not to be had."""
    match written:
        case Written.ROWS_BUSY:
            return Busy(job.policy.busy_after_seconds, "another program holds a row that the flip writes")
        case Written.COLUMN_SET:
            return Retry(0, "datasets.iceberg_namespace was set by another hand during the attempt")
        case _:
            return Retry(0, "the claim was taken over")
