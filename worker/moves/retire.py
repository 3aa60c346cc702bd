"""Retire a flipped dataset: after the grace, withdraw the name that it left.

Responsible for: the way from ``flipped`` to ``done``. A clean one asks the catalog four times: the live name, the
fence, a look into quarantine, the drop. Where something hints at another hand, the name that was left is looked at
before it is fenced: another table is not moved, even for a moment.
Must not know: how a pointer is withdrawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.lakehouse.port import CatalogError, ErrorCode
from worker.moves.look import Gone, There, Unclear
from worker.moves.machine import State
from worker.moves.ports import Action, Closed, Pointer, Written
from worker.moves.strays import withdraw_strays
from worker.moves.withdraw import replaced, withdraw
from worker.outcome import Busy, Done, Outcome, Park, ParkCode, Retry

if TYPE_CHECKING:
    from worker.moves.job import Job

_STAYS = "the pointer that was left stays"

_UNDISTURBED_CLAIM = 2
"""The claim of a retirement that is the first one after a first attempt: no other attempt or command lies between."""
_OVERDUE_SECONDS = 3600.0
"""A retirement that is later than this after its grace looks at the old name first."""


def retire(job: Job) -> Outcome:
    """One attempt at the way from ``flipped`` to ``done``. Raises CatalogError, LockLostError."""
    move, dataset = job.move, job.dataset
    if not dataset.exists:
        return Park(
            ParkCode.DATASET_DELETED,
            f"the dataset was deleted after it was moved; both pointers stay: {job.left} and {job.gone_to}",
            "drop the pointers by hand when nobody needs the table",
        )
    live = job.named(dataset.live_namespace)
    if live != job.gone_to:
        return Park(
            ParkCode.PLACED_ELSEWHERE,
            f"the ledger moved it to {job.gone_to}, the resolver names {live}; {_STAYS}",
            "find out who changed datasets.iceberg_namespace",
        )
    match job.look(live):
        case Unclear(error) if error.code is ErrorCode.FILE_MISSING:
            return _unreadable(error)
        case Unclear(error):
            raise error
        case Gone():
            return Park(
                ParkCode.TABLE_MISSING,
                f"{live}, which readers are sent to, is gone; {_STAYS}: {job.left}",
                f"register {move.old_location} as {live}, then `reroot retry`",
            )
        case There(keeper):
            pointer = Pointer(
                job.left, move.table_uuid or keeper.uuid, move.old_location or "", move.old_sequence_number or 0
            )
            return (
                withdraw_strays(job, keep=live)
                or _replaced(job, pointer)
                or withdraw(job, pointer, keeper, registered=True)
                or _finish(job)
            )


def _replaced(job: Job, pointer: Pointer) -> Park | None:
    """Whether another table has the name that was left; asked only where that is likely."""
    since_flip = job.move.target_named_ago or 0.0
    if (
        job.move.claim <= _UNDISTURBED_CLAIM
        and since_flip <= job.policy.grace_seconds + _OVERDUE_SECONDS
        and job.dataset.last_identifier != str(pointer.identifier)
    ):
        return None
    match job.look(pointer.identifier):
        case There(table) if table.uuid != pointer.table_uuid:
            return replaced(pointer, table)
        case Unclear(error) if error.code is not ErrorCode.FILE_MISSING:
            raise error
        case _:
            return None


def _finish(job: Job) -> Outcome:
    live = job.named(job.dataset.live_namespace)
    for entry in job.open(Action.REGISTER):
        if entry.pointer.identifier == live:
            job.controlplane.close(entry, Closed.KEPT)
    match job.lock.finish(job.claimed, live, job.left):
        case Written.COMMITTED:
            return Done(State.DONE)
        case Written.ROWS_BUSY:
            return Busy(job.policy.busy_after_seconds, "another program holds a log row that is to be rewritten")
        case Written.COLUMN_SET | Written.SUPERSEDED:
            return Retry(0, "the claim was taken over")


def _unreadable(error: CatalogError) -> Park:
    return Park(
        ParkCode.TABLE_UNREADABLE,
        f"the live name cannot be read: {error}; {_STAYS}",
        "restore the metadata file, then `reroot retry`",
    )
