"""Move by rename: one name at a time, for catalogs that hold a table once.

Responsible for: the rename, its window, and the settling of a rename that an earlier attempt left open.
Must not know: how the attempt came to this strategy.

Between the catalog's answer and our commit the resolver names a place that holds no table: only then a reader can
miss. So everything else is done before: the soak, through the old name; the namespace; the journal; every
write of the flip. After the rename come one look and the commit. After a crash in the window the open entry makes the
dataset due at once, and it is settled before anything else. Nothing here parks, or waits long, while the rename may
have happened. A table that cannot be read under its new name is renamed back before anything is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind, Table
from worker.moves.flipping import flip, flip_of, refused
from worker.moves.goal import Goal, goal_of, goal_to
from worker.moves.job import OutOfTimeError
from worker.moves.look import Gone, There, Unclear, name_taken
from worker.moves.machine import State
from worker.moves.ports import Action, Closed, Entry, Pointer
from worker.outcome import Done, Outcome, Park, ParkCode, Retry

if TYPE_CHECKING:
    from worker.identifiers import TableIdentifier
    from worker.moves.job import Job
    from worker.moves.look import Sighting

_TO_BE_ASKED: Final = frozenset({ErrorCode.ALREADY_EXISTS, ErrorCode.TABLE_MISSING, ErrorCode.NAMESPACE_MISSING})
"""Refusals that some server gives for another reason than it says: the names themselves are asked."""

_SUCCESS: Final = "it was answered with success"
_LASTING: Final = frozenset({ErrorCode.HIDDEN, ErrorCode.FORBIDDEN})
"""Why an existing name cannot be read: reasons that stay until an operator mends them."""
_AWAY: Final = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.THROTTLED, ErrorCode.UNAUTHORIZED})
"""Why no name can be read: a rename back would fail as well."""
_LASTS: Final = 60.0
"""Seconds after which a table is renamed back, whatever the error of its new name: readers miss it meanwhile."""


def ask_as_a_reader(job: Job, goal: Goal) -> There | Outcome | None:
    """Before a rename: may this worker read where the table is to go? What stands there; None where the name is free.

    A server may let a client rename to where it does not let it read. Raises CatalogError.
    """
    job.ensure_namespace(goal.target.namespace)
    if not job.sees_namespace(goal.target.namespace):
        job.forget_namespace(goal.target.namespace)
        why = f"the catalog does not show this worker the namespace of {goal.target}"
        return Retry(job.pause(), why, ParkCode.FORBIDDEN)
    try:
        return There(job.catalog.load(goal.target))
    except CatalogError as error:
        if error.code is ErrorCode.FORBIDDEN:
            why = f"this worker may not read {goal.target}, where the table would go: {error}"
            return Park(ParkCode.FORBIDDEN, why, "let this worker read tables in that namespace, then `reroot retry`")
        if error.code is not ErrorCode.TABLE_MISSING:
            raise
    return None


def rename(job: Job, goal: Goal, table: Table) -> Outcome:
    """Rename ``table`` to its goal and flip. Raises CatalogError, SoakError, LockLostError."""
    if job.controlplane.was_unreadable(job.claimed, goal.target):
        return _not_again(job, goal.target, goal.source)
    job.soak(table)
    job.ensure_namespace(goal.target.namespace)
    entry = _entry(job, goal.target, table)
    intended = flip_of(job, goal, table, table, State.DONE, [entry.id])
    not_to_be_had = job.lock.reserve(job.claimed, intended, idle_seconds=job.policy.window_seconds)
    if not_to_be_had is not None:
        _void(job, entry)
        return refused(job, not_to_be_had)
    # The flip says what the table was at the first look. A commit since then is in the table all the same.
    try:
        job.guard()
    except OutOfTimeError:
        _void(job, entry)
        raise
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
    match _seen(job, target):
        case There(table) if table.uuid == entry.pointer.table_uuid:
            return _settle_there(job, entry, table, live)
        case There():
            job.controlplane.close(entry, Closed.VOID)
            return None
        case Unclear(error) if error.code in _AWAY or (error.code not in _LASTING and entry.opened_ago < _LASTS):
            return _soon(f"{target} cannot be asked: {error}")
        case unseen:
            return _settle_unseen(job, entry, unseen, live)


def _settle_there(job: Job, entry: Entry, table: Table, live: TableIdentifier) -> Outcome | None:
    target, goal, left = entry.pointer.identifier, goal_of(job), job.look(live)
    # Another program's table has the live name: readers can find ours only where it is, whatever its place is now.
    taken = isinstance(left, There) and left.table.uuid != table.uuid
    if isinstance(left, There) and not taken:
        return None  # both names stand, or that answer is an old one: the two looks decide, under this open entry
    if not isinstance(goal, Goal) or goal.target != target or goal.adopted:
        # The place has changed since: back to the name that the resolver gives, then start over.
        if not (taken and job.dataset.exists):
            return _rename_back(job, entry, live, Closed.RETURNED)
        goal = goal_to(job, live, target)
    # Unknown does not stop the flip, for readers miss the table now; the withdrawal, later, asks again.
    state = State.FLIPPED if isinstance(left, Unclear) else State.DONE
    return flip(job, flip_of(job, goal, table, table, state, [entry.id]))


def _settle_unseen(job: Job, entry: Entry, unseen: Gone | Unclear, live: TableIdentifier) -> Outcome | None:
    """The new name does not show the table. Where the old name is free, the table is renamed back, if that succeeds."""
    target, home = entry.pointer.identifier, job.look(live)
    if isinstance(home, There):
        return None  # the attempt renames again under this very entry: its request may still be on its way
    ended: Outcome = _soon(f"the catalog shows neither {target} nor {live}")
    if isinstance(home, Gone):
        goal = goal_of(job)
        wanted = isinstance(goal, Goal) and goal.target == target
        back = _leave(job, entry, live, unseen) if wanted else _rename_back(job, entry, live, Closed.RETURNED)
        if not (isinstance(back, Retry) and back.urgent):
            return back
        ended = back
    # The namespace was made before the rename. Where it is not shown, it is hidden, and so is the table.
    gone = isinstance(unseen, Gone) and job.catalog.namespace_exists(target.namespace)
    return None if gone else ended


def _rename_back(job: Job, entry: Entry, home: TableIdentifier, how: Closed) -> Outcome | None:
    """Rename the table back to ``home``; None: it is there, and the entry is closed."""
    away = entry.pointer.identifier
    error: CatalogError | None = None
    try:
        job.guard()
    except OutOfTimeError:
        return _soon(f"no time is left to rename {away} back to {home}")
    try:
        job.catalog.rename(away, home)
    except CatalogError as refusal:
        error = refusal
    if not isinstance(job.look(home), There):
        return _soon(f"{away} is not renamed back to {home} yet: {error or _SUCCESS}")
    if error is not None and not isinstance(job.look(away), Gone):
        return _soon(f"{away} is not renamed back yet: {error}")
    job.lock.give_back()
    job.controlplane.close(entry, how)
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
    denied = error is not None and error.kind is not ErrorKind.UNKNOWN
    match job.look(goal.target) if denied else _seen(job, goal.target):
        case There(table) if table.uuid == entry.pointer.table_uuid:
            return _commit(job, goal, error)
        case There(other) if denied:
            job.lock.give_back()
            job.controlplane.close(entry, Closed.VOID)
            return name_taken(other, entry.pointer.table_uuid)
        case Gone() | Unclear(CatalogError(code=ErrorCode.HIDDEN)) if denied and error is not None:
            return _certainly_not(job, goal, entry, error)
        case Gone() | Unclear() as unseen if not denied and _goes_back(unseen, error):
            return _take_back(job, goal, entry, unseen)
        case _:
            return _soon(f"the rename to {goal.target} is not settled: {error or _SUCCESS}")


def _goes_back(unseen: Gone | Unclear, error: CatalogError | None) -> bool:
    """Whether to rename back: after a success for any fault, without an answer only where the table is there."""
    if isinstance(unseen, Gone):
        return error is None
    return unseen.error.code in _LASTING or (error is None and unseen.error.code not in _AWAY)


def _take_back(job: Job, goal: Goal, entry: Entry, unseen: Gone | Unclear) -> Outcome:
    """Rename the table back, before any commit: it cannot be read under its new name."""
    if isinstance(unseen, Gone) and isinstance(job.look(goal.source), There):
        _void(job, entry)
        return Retry(job.pause(), f"the catalog answered the rename to {goal.target} with success and renamed nothing")
    return _leave(job, entry, goal.source, unseen)


def _leave(job: Job, entry: Entry, home: TableIdentifier, unseen: Gone | Unclear) -> Outcome:
    """Rename the table back to ``home``. Returns how the attempt ends."""
    lasts = isinstance(unseen, Gone) or unseen.error.code in _LASTING
    back = _rename_back(job, entry, home, Closed.UNREADABLE if lasts else Closed.RETURNED)
    if back is not None:
        return back
    parked = _unreadable(job, entry.pointer.identifier, home, unseen)
    return parked if lasts else Retry(job.pause(), parked.why, ParkCode.TABLE_UNREADABLE)


def _unreadable(job: Job, target: TableIdentifier, home: TableIdentifier, unseen: Gone | Unclear) -> Park:
    seen = str(unseen.error) if isinstance(unseen, Unclear) else "the catalog shows no table there"
    forbidden = isinstance(unseen, Unclear) and unseen.error.code is ErrorCode.FORBIDDEN
    return Park(
        ParkCode.FORBIDDEN if forbidden else ParkCode.NAME_HIDDEN,
        f"the table was renamed to {target}, could not be read there, and was renamed back to {home}: {seen}",
        _mend(job),
    )


def _not_again(job: Job, target: TableIdentifier, home: TableIdentifier) -> Park:
    return Park(
        ParkCode.NAME_HIDDEN,
        f"the table could not be read after an earlier rename to {target}; it was not renamed again and is {home}",
        _mend(job),
    )


def _mend(job: Job) -> str:
    again = f"`reroot retry {job.move.dataset_id} --mended`"
    other = "change the table's name or the dataset's schema (docs/catalogs.md)"
    return f"let this worker read the table there, or {other}; then {again}"


def _seen(job: Job, identifier: TableIdentifier) -> Sighting:
    """A look, and another where it shows nothing: one answer may be an old one, or a gateway's. Both must agree."""
    seen = job.look(identifier)
    if isinstance(seen, There) or (isinstance(seen, Unclear) and seen.error.code in _AWAY):
        return seen
    again = job.look(identifier)
    if isinstance(again, There) or _says(again) == _says(seen):
        return again
    text = f"two looks at {identifier} do not agree: {_says(seen)}, then {_says(again)}"
    return Unclear(CatalogError(ErrorCode.UNREADABLE, ErrorKind.UNKNOWN, text))


def _says(seen: Gone | Unclear) -> str:
    return "gone" if isinstance(seen, Gone) else seen.error.code.value


def _commit(job: Job, goal: Goal, error: CatalogError | None) -> Outcome:
    """After a refusal the old name may stand beside the new one, by another hand: then the two looks decide."""
    if error is not None and not isinstance(job.look(goal.source), Gone):
        return _soon(f"{goal.target} stands, and it is not certain that {goal.source} is gone: {error}")
    job.lock.commit()
    return Done(State.DONE)


def _certainly_not(job: Job, goal: Goal, entry: Entry, error: CatalogError) -> Outcome:
    """Refused, and the new name is free. Where the old name still stands, nothing happened."""
    if not isinstance(job.look(goal.source), There):
        return _soon(f"the catalog shows neither {goal.source} nor {goal.target} after a refused rename: {error}")
    _void(job, entry)
    if error.code is ErrorCode.NAMESPACE_MISSING:
        job.forget_namespace(goal.target.namespace)
        return Retry(0, str(error))
    return Retry(job.pause(), f"the catalog refuses the free name {goal.target}: {error}", ParkCode.NAME_TAKEN)


def _soon(why: str) -> Retry:
    return Retry(0, why, urgent=True)
