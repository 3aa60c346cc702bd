"""Move by rename: one name at a time, for catalogs that hold a table once.

Responsible for: the rename, its window, and the settling of a rename that an earlier attempt left open.
Must not know: how the attempt came to this strategy.

Between the catalog's answer and our commit the resolver names a place where nothing stands: the one moment in which a
reader can miss. So everything else is done before: the soak, through the old name; the namespace; the journal; every
write of the flip. After the rename come one look and the commit. After a crash in the window the open entry makes the
dataset due at once, and it is settled before anything else. Nothing here parks, or waits long, while the rename may
have happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind, Table
from worker.moves.flipping import flip, flip_of, refused
from worker.moves.goal import Goal, goal_of, goal_to
from worker.moves.look import Gone, There, Unclear, name_taken
from worker.moves.machine import State
from worker.moves.ports import Action, Closed, Entry, Pointer
from worker.outcome import Done, Outcome, ParkCode, Retry, backoff

if TYPE_CHECKING:
    from worker.identifiers import TableIdentifier
    from worker.moves.job import Job

_TO_BE_ASKED = frozenset({ErrorCode.ALREADY_EXISTS, ErrorCode.TABLE_MISSING, ErrorCode.NAMESPACE_MISSING})
"""Refusals that some server gives for another reason than it says: the names themselves are asked."""


def rename(job: Job, goal: Goal, table: Table) -> Outcome:
    """Rename ``table`` to its goal and flip. Raises CatalogError, SoakError, LockLostError."""
    job.soak(table)
    job.ensure_namespace(goal.target.namespace)
    entry = _entry(job, goal.target, table)
    intended = flip_of(job, goal, table, table, State.DONE, [entry.id])
    not_to_be_had = job.lock.reserve(job.claimed, intended, idle_seconds=job.policy.window_seconds)
    if not_to_be_had is not None:
        _void(job, entry)
        return refused(job, not_to_be_had)
    # The flip says what the table was at the first look. A commit since then is in the table all the same.
    job.guard()
    try:
        job.catalog.rename(goal.source, goal.target)
    except CatalogError as error:
        if error.kind is not ErrorKind.UNKNOWN and error.code not in _TO_BE_ASKED:
            _void(job, entry)
            raise
        return _ask(job, goal, entry, error)
    return _ask(job, goal, entry, None)


def settle(job: Job, entry: Entry) -> Outcome | None:
    """Settle a rename that an earlier attempt left open: flip, or rename back; None: the attempt goes on from there."""
    target, live = entry.pointer.identifier, job.live()
    if target == live:
        job.controlplane.close(entry, Closed.KEPT)
        return None
    match job.look(target):
        case Unclear(error):
            return _soon(f"{target} cannot be asked: {error}")
        case There(table) if table.uuid == entry.pointer.table_uuid:
            return _settle_there(job, entry, table, live)
        case There():
            job.controlplane.close(entry, Closed.VOID)
        case Gone() if not isinstance(job.look(live), There) and not job.catalog.namespace_exists(target.namespace):
            # Made before the rename, so that it is hidden rather than gone, and the table with it.
            return _soon(f"{live} is gone, and the namespace of {target} is not in sight")
        case Gone():
            pass  # the attempt renames again under this very entry: its request may still be on its way
    return None


def _settle_there(job: Job, entry: Entry, table: Table, live: TableIdentifier) -> Outcome | None:
    target, goal, left = entry.pointer.identifier, goal_of(job), job.look(live)
    # Another hand's table under the live name: readers find ours only where it stands, whatever place it has by now.
    taken = isinstance(left, There) and left.table.uuid != table.uuid
    if not isinstance(goal, Goal) or goal.target != target or goal.adopted:
        if not (taken and job.dataset.exists):
            return _rename_back(job, entry, live)
        goal = goal_to(job, live, target)
    elif isinstance(left, There) and not taken:
        return None  # both names stand, or that answer is an old one: the two looks decide, under this open entry
    # Unknown does not stop the flip, for readers miss the table now; the withdrawal, later, asks again.
    state = State.FLIPPED if isinstance(left, Unclear) else State.DONE
    return flip(job, flip_of(job, goal, table, table, state, [entry.id]))


def _rename_back(job: Job, entry: Entry, home: TableIdentifier) -> Outcome | None:
    """The place has changed since: put the table back to the name that the resolver gives, then start over."""
    away = entry.pointer.identifier
    job.guard()
    error: CatalogError | None = None
    try:
        job.catalog.rename(away, home)
    except CatalogError as refusal:
        error = refusal
    if not isinstance(job.look(home), There):
        return _soon(f"{away} is not back under {home} yet: {error or 'its answer was a clean yes'}")
    if error is not None and not isinstance(job.look(away), Gone):
        # Both names stand, or that answer is an old one: the two looks decide, under this open entry.
        return None if error.code is ErrorCode.ALREADY_EXISTS else _soon(f"{away} is not back yet: {error}")
    job.controlplane.close(entry, Closed.RETURNED)
    return None


def _entry(job: Job, target: TableIdentifier, table: Table) -> Entry:
    """An open entry for this target is used again: its request may still be on its way."""
    for entry in job.open(Action.RENAME):
        if entry.pointer.identifier == target and entry.pointer.table_uuid == table.uuid:
            return entry
    pointer = Pointer(target, table.uuid, table.metadata_location, table.sequence_number)
    return job.controlplane.journal(job.claimed, Action.RENAME, pointer)


def _void(job: Job, entry: Entry) -> None:
    """Nothing was sent, or it was refused. An earlier attempt's request under the same entry may still arrive."""
    job.lock.give_back()
    if entry not in job.claimed.entries:
        job.controlplane.close(entry, Closed.VOID)


def _ask(job: Job, goal: Goal, entry: Entry, error: CatalogError | None) -> Outcome:
    """Look at the new name: that, and not the answer, says whether the rename happened."""
    match job.look(goal.target):
        case There(table) if table.uuid == entry.pointer.table_uuid:
            return _commit(job, goal, error)
        case There(other) if error is not None and error.kind is not ErrorKind.UNKNOWN:
            job.lock.give_back()
            job.controlplane.close(entry, Closed.VOID)
            return name_taken(other, entry.pointer.table_uuid)
        case Gone() if error is not None and error.kind is not ErrorKind.UNKNOWN:
            return _certainly_not(job, goal, entry, error)
        case _:
            return _soon(f"the rename to {goal.target} is not settled: {error or 'its answer was a clean yes'}")


def _commit(job: Job, goal: Goal, error: CatalogError | None) -> Outcome:
    """After a refusal the old name may stand beside the new one, by another hand: then the two looks decide."""
    if error is not None and not isinstance(job.look(goal.source), Gone):
        return _soon(f"{goal.target} stands, and it is not certain that {goal.source} is gone: {error}")
    job.lock.commit()
    return Done(State.DONE)


def _certainly_not(job: Job, goal: Goal, entry: Entry, error: CatalogError) -> Outcome:
    """Refused, and the new name is free. Where the old name still stands, nothing happened."""
    if not isinstance(job.look(goal.source), There):
        return _soon(f"neither {goal.source} nor {goal.target} can be seen after a refused rename: {error}")
    _void(job, entry)
    if error.code is ErrorCode.NAMESPACE_MISSING:
        job.forget_namespace(goal.target.namespace)
        return Retry(0, str(error))
    pause = backoff(job.move.attempts, job.policy.jitter())
    return Retry(pause, f"the catalog refuses the free name {goal.target}: {error}", ParkCode.NAME_TAKEN)


def _soon(why: str) -> Retry:
    return Retry(0, why, urgent=True)
