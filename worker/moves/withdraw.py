"""Take a pointer away: the one routine for retiring, stale registrations and earlier targets.

Responsible for: fence, look, drop, and the finishing of a withdrawal that died half way.
Must not know: why the pointer is to go.

What always holds here: the pointer that the resolver names is never withdrawn; the last pointer to a table is never
withdrawn; a pointer that has moved on since it was expected is put back; doubt removes nothing. Each step returns
None when the pointer is gone, else how the attempt ends. An entry is closed only when its pointer is gone, back under
its name, or was never touched: one that stays in quarantine for a person is looked at first when the job is retried.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from worker.identifiers import TableIdentifier, quarantine_identifier
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind, Table
from worker.moves.look import Gone, There, Unclear, diverged, reaches
from worker.moves.ports import Action, Closed, Entry, Pointer
from worker.outcome import Outcome, Park, ParkCode, Retry

if TYPE_CHECKING:
    from worker.moves.job import Job
    from worker.moves.look import Sighting

_LOOK_FIRST = "`reroot show` has both locations; compare them, then `reroot retry`"


def withdraw(job: Job, pointer: Pointer, keeper: Table, *, registered: bool) -> Outcome | None:
    """Withdraw ``pointer``. ``keeper`` is the other name's table, loaded in this attempt.

    ``registered``: keeper and pointer grew from one another by a registration of ours, as the journal says.
    """
    if job.live() == pointer.identifier:
        return doubtful(f"the resolver names {pointer.identifier}: it stays")
    given_up = pointer.metadata_location == job.move.given_up and keeper.uuid == pointer.table_uuid
    if keeper.identifier == pointer.identifier or not (given_up or reaches(keeper, pointer, registered=registered)):
        return doubtful(f"{keeper.identifier} does not hold all that {pointer.identifier} points to")
    return _fence(job, job.controlplane.journal(job.claimed, Action.WITHDRAW, pointer), keeper)


def resume(job: Job, entry: Entry) -> Outcome | None:
    """Settle a withdrawal that an earlier attempt left open: finish it, or undo it where the name is live again."""
    pointer, live, shelter = entry.pointer, job.live(), _quarantine(entry)
    job.forget_namespace(shelter.namespace)
    job.ensure_namespace(shelter.namespace)  # it may never have been made, or be gone again; then it hides nothing
    held = job.look(shelter)
    if pointer.identifier == live:
        return _back_to_live(job, entry, held)
    keeper = job.look(live)
    if isinstance(keeper, There) and keeper.table.uuid == pointer.table_uuid:
        return _inspect(job, entry, keeper.table, held, fence_again=True)
    if isinstance(keeper, Unclear):
        raise keeper.error
    why = doubtful(f"{live} is gone or another table: {pointer.identifier} is the last pointer and stays")
    if isinstance(held, Unclear):
        raise held.error
    if isinstance(held, There):
        return _give_back(job, entry, why)
    job.controlplane.close(entry, Closed.VOID)
    return why


def _fence(job: Job, entry: Entry, keeper: Table) -> Outcome | None:
    """Rename the pointer into quarantine, so that no writer can commit through it unseen."""
    name, shelter = entry.pointer.identifier, _quarantine(entry)
    job.ensure_namespace(shelter.namespace)
    job.guard()
    try:
        job.catalog.rename(name, shelter)
    except CatalogError as error:
        if error.code is ErrorCode.NOT_OFFERED:
            return _look_and_drop(job, entry, keeper)
        if error.code is ErrorCode.FILE_MISSING:
            return _drop_cleaned(job, entry, name, keeper, error)
        if error.code is ErrorCode.NAMESPACE_MISSING:
            job.forget_namespace(shelter.namespace)
        elif error.kind is not ErrorKind.UNKNOWN and error.code not in {
            ErrorCode.ALREADY_EXISTS,
            ErrorCode.TABLE_MISSING,
        }:
            job.controlplane.close(entry, Closed.VOID)
            raise
    return _inspect(job, entry, keeper, job.look(shelter), fence_again=False)


def _inspect(job: Job, entry: Entry, keeper: Table, held: Sighting, *, fence_again: bool) -> Outcome | None:
    """Look at what is in quarantine, then drop it, put it back, or find out where it is."""
    shelter = _quarantine(entry)
    match held:
        case There(table) if table.uuid != entry.pointer.table_uuid:
            return _give_back(job, entry, replaced(entry.pointer, table))
        case There(table) if _as_expected(job, table, entry, keeper):
            return _drop(job, entry, shelter, keeper)
        case There(table):
            # Named as it will stand for whoever reads this: under the name that it is given back.
            home = replace(table, identifier=entry.pointer.identifier)
            return _give_back(job, entry, diverged(home, keeper))
        case Unclear(error) if error.code is ErrorCode.FILE_MISSING:
            return _drop_cleaned(job, entry, shelter, keeper, error)
        case Unclear(error):
            raise error
        case Gone():
            return _not_in_quarantine(job, entry, keeper, fence_again=fence_again)


def _not_in_quarantine(job: Job, entry: Entry, keeper: Table, *, fence_again: bool) -> Outcome | None:
    name = entry.pointer.identifier
    match job.look(name):
        case There(table) if table.uuid != entry.pointer.table_uuid:
            return replaced(entry.pointer, table)
        case There(_) if fence_again:
            return _fence(job, entry, keeper)
        case There(_):
            # The entry stays open: the rename may still be under way, and its place carries the entry's id.
            return Retry(job.pause(), f"{name} could not be fenced")
        case Unclear(error) if error.code is ErrorCode.FILE_MISSING:
            return _drop_cleaned(job, entry, name, keeper, error)
        case Unclear(error):
            raise error
        case Gone():
            return _gone(job, entry, keeper)


def _gone(job: Job, entry: Entry, keeper: Table) -> Outcome | None:
    """The name is free: by a removal, or by a rename that has landed since quarantine was looked at."""
    held = job.look(_quarantine(entry))
    if not isinstance(held, Gone):
        return _inspect(job, entry, keeper, held, fence_again=False)
    job.controlplane.close(entry, Closed.WITHDRAWN)
    return None


def _drop(job: Job, entry: Entry, at: TableIdentifier, keeper: Table) -> Outcome | None:
    """DELETE, not purged, and make sure of it."""
    job.guard()
    try:
        job.catalog.drop(at)
    except CatalogError as error:
        if error.kind is not ErrorKind.UNKNOWN and error.code is not ErrorCode.TABLE_MISSING:
            raise
        match job.look(at):
            case There(_):
                return Retry(job.pause(), f"{at} could not be dropped: {error}")
            case Unclear(doubt):
                raise doubt from error
            case Gone() if at == entry.pointer.identifier:
                return _gone(job, entry, keeper)
            case Gone():
                pass
    job.controlplane.close(entry, Closed.WITHDRAWN)
    return None


def _look_and_drop(job: Job, entry: Entry, keeper: Table) -> Outcome | None:
    """Where the server cannot rename there is no fence: one request lies between this look and the DELETE."""
    name = entry.pointer.identifier
    match job.look(name):
        case There(table) if table.uuid != entry.pointer.table_uuid:
            job.controlplane.close(entry, Closed.VOID)
            return replaced(entry.pointer, table)
        case There(table) if _as_expected(job, table, entry, keeper):
            return _drop(job, entry, name, keeper)
        case There(table):
            job.controlplane.close(entry, Closed.VOID)
            return diverged(table, keeper)
        case Unclear(error) if error.code is ErrorCode.FILE_MISSING:
            return _drop_cleaned(job, entry, name, keeper, error)
        case Unclear(error):
            raise error
        case Gone():
            job.controlplane.close(entry, Closed.WITHDRAWN)
            return None


def _drop_cleaned(job: Job, entry: Entry, at: TableIdentifier, keeper: Table, error: CatalogError) -> Outcome | None:
    """The pointer's metadata file is gone, cleaned up by commits under the other name: then it may go, if proved."""
    pointer = entry.pointer
    if (
        error.location in {None, pointer.metadata_location}
        and keeper.sequence_number >= pointer.sequence_number
        and job.catalog.file_missing(pointer.metadata_location, keeper)
    ):
        return _drop(job, entry, at, keeper)
    return doubtful(f"{at} cannot be read ({error}), and nothing shows that its file was cleaned up by commits since")


def _back_to_live(job: Job, entry: Entry, held: Sighting) -> Outcome | None:
    """The name that the pointer came from is the live one: put it back where it is free."""
    pointer = entry.pointer
    match held, job.look(pointer.identifier):
        case Unclear(error), _:
            raise error
        case _, Unclear(error):
            raise error
        case Gone(), _:
            job.controlplane.close(entry, Closed.VOID)
            return None
        case There(_), Gone():
            return _give_back(job, entry, None)
        case There(table), There(home) if home.uuid == table.uuid:
            return _inspect(job, entry, home, held, fence_again=False)
        case _:
            return doubtful(f"{pointer.identifier} was taken by another table; ours is {_quarantine(entry)}")


def _give_back(job: Job, entry: Entry, then: Park | None) -> Outcome | None:
    """Rename the pointer out of quarantine to where it came from, then end as ``then`` says."""
    name, shelter = entry.pointer.identifier, _quarantine(entry)
    job.guard()
    try:
        job.catalog.rename(shelter, name)
    except CatalogError as error:
        match job.look(name), job.look(shelter):
            case There(_), Gone():
                pass
            case There(home), There(held) if held.uuid != entry.pointer.table_uuid == home.uuid:
                job.controlplane.close(entry, Closed.VOID)
                return doubtful(f"another table stands in quarantine as {shelter}; {name} was not touched")
            case There(_), There(_):
                why = then.why if then else f"{name} was taken meanwhile"
                return doubtful(f"{why}; the pointer is left in quarantine as {shelter}")
            case _:
                return Retry(job.pause(), f"{shelter} is not back yet: {error}")
    job.controlplane.close(entry, Closed.RETURNED)
    return then


def _as_expected(job: Job, table: Table, entry: Entry, keeper: Table) -> bool:
    """Nobody has committed through the pointer since, or the keeper holds what they committed."""
    here = table.metadata_location
    if here == keeper.metadata_location or here in keeper.metadata_log or here == job.move.given_up:
        return True
    # A keeper that shares what came before, and not this, did not grow from it: somebody has set it back.
    beside = keeper.metadata_location in table.metadata_log or keeper.metadata_log & table.metadata_log
    return here == entry.pointer.metadata_location and not beside


def _quarantine(entry: Entry) -> TableIdentifier:
    return quarantine_identifier(entry.pointer.identifier.name, entry.id)


def replaced(pointer: Pointer, table: Table) -> Park:
    """Another table stands under the pointer's name. It is never touched."""
    return Park(
        ParkCode.SOURCE_REPLACED,
        f"{pointer.identifier} is another table now (uuid {table.uuid}, it was {pointer.table_uuid})",
        _LOOK_FIRST,
    )


def doubtful(why: str) -> Park:
    """Nothing is withdrawn in doubt: a person looks first."""
    return Park(ParkCode.WITHDRAWAL_DOUBTFUL, why, _LOOK_FIRST)
