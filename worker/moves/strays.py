"""Pointers that earlier attempts made and that nobody needs any more.

Responsible for: the clean-up of open registrations under other names than the one that is kept: an earlier target,
when the dataset changed its schema between attempts (twice, too), or every target, when it was deleted.
Must not know: why the name that is kept is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.moves.look import Gone, There, Unclear
from worker.moves.machine import State
from worker.moves.ports import Action, Closed, Entry
from worker.moves.withdraw import doubtful, withdraw

if TYPE_CHECKING:
    from worker.identifiers import TableIdentifier
    from worker.moves.job import Job
    from worker.outcome import Outcome


def withdraw_strays(job: Job, keep: TableIdentifier) -> Outcome | None:
    """Withdraw every open registration that is not ``keep``; None when none is left that could be."""
    for entry in job.open(Action.REGISTER):
        if entry.pointer.identifier != keep:
            ended = _withdraw_stray(job, entry)
            if ended is not None:
                return ended
    return None


def _withdraw_stray(job: Job, entry: Entry) -> Outcome | None:
    pointer = entry.pointer
    match job.look(pointer.identifier):
        case Unclear(error):
            raise error
        case Gone():
            # A registration whose answer was lost may still land: only the retirement, a grace later, closes it.
            if job.move.state is State.FLIPPED:
                job.controlplane.close(entry, Closed.VOID)
            return None
        case There(table) if table.uuid != pointer.table_uuid:
            job.controlplane.close(entry, Closed.VOID)
            return None
        case There(_):
            return _withdraw_ours(job, entry)


def _withdraw_ours(job: Job, entry: Entry) -> Outcome | None:
    live = job.live()
    match job.look(live):
        case Unclear(error):
            raise error
        case There(keeper) if keeper.uuid == entry.pointer.table_uuid:
            ended = withdraw(job, entry.pointer, keeper, registered=True)
            if ended is None:
                job.controlplane.close(entry, Closed.WITHDRAWN)
            return ended
        case _:
            return doubtful(
                f"{live} is gone or another table: {entry.pointer.identifier} is the last pointer and stays"
            )
