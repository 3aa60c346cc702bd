"""Pointers that attempts made and that nobody needs any more.

Responsible for: the clean-up of open registrations under other names than the one that is kept: an earlier target,
when the dataset changed its schema between attempts (twice, too), and before a park every target that never was live.
Must not know: why the name that is kept is kept, why a job is parked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from worker.lakehouse.port import CatalogError, ErrorCode
from worker.moves.job import OutOfTimeError
from worker.moves.look import Gone, There, Unclear
from worker.moves.machine import State
from worker.moves.ports import Action, Closed, Entry
from worker.moves.withdraw import doubtful, resume, withdraw
from worker.outcome import Park, ParkCode, Retry, Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.identifiers import TableIdentifier
    from worker.moves.job import Job
    from worker.outcome import Outcome

_KEEPS_BOTH: Final = frozenset({ParkCode.DIVERGED, ParkCode.WITHDRAWAL_DOUBTFUL})
"""These codes need both pointers for an operator's decision."""
_TRIES: Final = 3
"""How often a withdrawal of a registration is tried, and how many killed attempts at it are allowed, before the dataset
is parked with it: an answer may be lost."""
_SECONDS: Final = 20.0
"""Seconds for this where the attempt's own time is used up."""


def withdraw_strays(job: Job, keep: TableIdentifier) -> Outcome | None:
    """Withdraw every open registration that is not ``keep``; None when none is left that could be."""
    for entry in job.open(Action.REGISTER):
        if entry.pointer.identifier != keep:
            ended = _withdraw_stray(job, entry)
            if ended is not None:
                return ended
    return None


def take_back(job: Job, park: Park, ended_by: Callable[[CatalogError], Outcome]) -> Outcome:
    """Withdraw our registrations before a job is parked that has not flipped.

    The live name gets new commits while the dataset is parked, and maintenance through a registration that lacks them
    deletes files that the live name needs. Returns ``park``, which names each pointer that stays and why; or what was
    found meanwhile: the names have diverged, or the warehouse is away. Raises LockLostError.
    """
    if job.move.state is not State.QUEUED or park.code in _KEEPS_BOTH:
        return park
    job = replace(job, deadline=max(job.deadline, job.policy.clock() + _SECONDS))
    stays = {entry.pointer.identifier: "the attempts at it were killed" for entry in _made(job)}
    again = bool(stays) and job.move.attempts <= job.policy.max_attempts + _TRIES
    for _ in range(_TRIES):
        if not again:
            break
        stays, again = {}, False
        for entry in (*_open(job, Action.WITHDRAW), *_made(job)):
            ended = _taken_back(job, entry, ended_by)
            match ended:
                case Wait():
                    return ended
                case Park(ParkCode.DIVERGED):
                    return replace(ended, why=f"{ended.why}; before that {park.code}: {park.why}")
                case Park() | Retry():
                    stays[entry.pointer.identifier] = ended.why
                    again = again or isinstance(ended, Retry)
    if not stays:
        return park
    reasons = "; ".join(f"{identifier} was not withdrawn: {why}" for identifier, why in sorted(stays.items()))
    return replace(park, why=f"{park.why}; two pointers exist: {reasons}")


def finish_withdrawal(job: Job, entry: Entry) -> Outcome | None:
    """Settle a withdrawal that was left open, and with it the registration that had made the pointer."""
    ended = resume(job, entry)
    if ended is None and entry.pointer.identifier != job.live():
        made = [each for each in _made(job) if each.pointer == entry.pointer]
        for each in made[-1:]:  # an earlier one may still be on its way
            job.controlplane.close(each, Closed.WITHDRAWN)
    return ended


def _open(job: Job, action: Action) -> list[Entry]:
    """What is open at this instant, this attempt's own included."""
    return [entry for entry in job.controlplane.open_entries(job.claimed) if entry.action is action]


def _made(job: Job) -> list[Entry]:
    """Open registrations, without the live name's."""
    keep = job.live() if job.dataset.exists else job.left
    return [entry for entry in _open(job, Action.REGISTER) if entry.pointer.identifier != keep]


def _taken_back(job: Job, entry: Entry, ended_by: Callable[[CatalogError], Outcome]) -> Outcome | None:
    """Withdraw one pointer, or finish its withdrawal; None where it is gone, or may appear later."""
    ago = job.move.target_named_ago
    try:
        if entry.action is Action.WITHDRAW:
            return finish_withdrawal(job, entry)
        if entry.pointer.identifier == job.gone_to and ago is not None and ago < job.policy.grace_seconds:
            return doubtful("readers may still use it")
        return _withdraw_stray(job, entry)
    except CatalogError as error:
        return ended_by(error)
    except OutOfTimeError:
        return Retry(0, "the attempt had no time left")


def _withdraw_stray(job: Job, entry: Entry) -> Outcome | None:
    pointer = entry.pointer
    match job.look(pointer.identifier):
        case Unclear(CatalogError(code=ErrorCode.HIDDEN)):
            return _withdraw_ours(job, entry)  # quarantine shows which table it is; another table is renamed back
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
