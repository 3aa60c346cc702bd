"""Tell an outage from a fault of one table, and end the attempt by it.

Responsible for: how an attempt ends by a catalog's error, and that an outage costs no attempt, whichever request meets
it and whether or not the step that met it went on.
Must not know: what the attempt was doing.

An error about one table says nothing about the warehouse. So something else that is known to stand is asked for: the
legacy namespace, or the namespace of the live name. Where that is refused, silent or not to be seen either, the
warehouse as a whole is away: its jobs wait, one of them asks again, and one line says why.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from worker.identifiers import LEGACY_NAMESPACE
from worker.lakehouse.port import CatalogError, ErrorCode
from worker.moves.ports import CREDENTIALS_REFUSED
from worker.outcome import Outcome, Park, ParkCode, Retry, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.identifiers import TableIdentifier
    from worker.lakehouse.port import Catalog
    from worker.moves.job import Job

_REFUSED: Final = frozenset({ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN})
_AWAY: Final = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.THROTTLED, ErrorCode.UNAUTHORIZED, ErrorCode.STORAGE_AWAY})
"""Errors that a working server does not give."""
_DOUBT: Final = frozenset({ErrorCode.UNCLEAR, ErrorCode.UNREADABLE, ErrorCode.FILE_MISSING})
"""Errors that may concern one table or the whole warehouse."""
_OF_NAMES: Final = frozenset({ErrorCode.TABLE_MISSING, ErrorCode.NAMESPACE_MISSING, ErrorCode.ALREADY_EXISTS})
"""Errors about names: out of date, or about a request that was sent twice. The next look decides."""
_EVERY_TABLE: Final = frozenset({ErrorCode.UNCLEAR, ErrorCode.UNAVAILABLE})
"""Errors for every table while a server cannot reach its storage."""
_OTHERS: Final = 3
"""Other tables of a namespace that are asked for: the first ones may be damaged themselves."""
_LONGEST_WAIT: Final = 300.0
_CREDENTIALS_WAIT: Final = 60.0
_STORAGE_WAIT: Final = 30.0


@dataclass(slots=True)
class Watched:
    """A catalog whose errors are remembered: a step may go on after one, and an outage counts all the same."""

    catalog: Catalog
    errors: list[CatalogError] = field(default_factory=list)
    answered: bool = False
    """Whether any request was answered with what it asked for."""

    def __getattr__(self, method: str) -> Callable[..., Any]:
        call = getattr(self.catalog, method)

        def watched(*arguments: Any, **keywords: Any) -> Any:
            try:
                answer = call(*arguments, **keywords)
            except CatalogError as error:
                self.errors.append(error)
                raise
            self.answered = True
            return answer

        return watched

    def list_tables(self, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        """Page after page, each of which may fail."""
        try:
            yield from self.catalog.list_tables(namespace)
        except CatalogError as error:
            self.errors.append(error)
            raise

    @property
    def works(self) -> bool:
        """Whether requests were answered, and no error was that of an outage."""
        return self.answered and all(error.code not in _AWAY for error in self.errors)


def ended_by(error: CatalogError, job: Job) -> Outcome:
    """How an attempt ends by a catalog's error that no step could make sense of."""
    waiting = _outage(error, job)
    if waiting is not None:
        return waiting
    match error.code:
        case ErrorCode.FORBIDDEN:
            job.memory.rights.forbidden(job.dataset.warehouse)
            return Park(ParkCode.FORBIDDEN, _alone(error), "grant what is missing, then `reroot retry`")
        case ErrorCode.HIDDEN:
            return Retry(job.pause(), str(error), ParkCode.NAME_HIDDEN)
        case ErrorCode.UNAUTHORIZED:
            return Retry(job.pause(), _alone(error), ParkCode.FORBIDDEN)
        case code if code in _AWAY | _DOUBT:
            return Retry(job.pause(), str(error), ParkCode.TABLE_UNREADABLE)
        case code if code in _OF_NAMES:
            return Retry(job.pause(), str(error), ParkCode.REFUSED)
        case _:
            return Park(ParkCode.REFUSED, str(error), "mend what the catalog refuses, then `reroot retry`")


def excused(outcome: Outcome, job: Job, watched: Watched) -> Outcome:
    """A retry after an outage that some step has met is a wait."""
    if not isinstance(outcome, Retry):
        return outcome
    for codes in (_AWAY, _DOUBT):
        met = next((error for error in watched.errors if error.code in codes), None)
        if met is not None:
            waiting = _outage(met, job)
            # The outage may be over by now. A rename that it left unsettled is looked at again soon, and for free.
            over = outcome.urgent and codes is _AWAY
            return waiting or (Wait(outcome.after, outcome.why) if over else outcome)
    return outcome


def storage_away(why: str, job: Job) -> Wait:
    """How an attempt ends when storage does not answer. Other tables may lie in other storage."""
    return Wait(_STORAGE_WAIT * (0.8 + 0.4 * job.policy.jitter()), f"storage does not answer: {why}")


def _outage(error: CatalogError, job: Job) -> Wait | None:
    """How long to wait where the error is not this table's own; None where it is."""
    if error.code is ErrorCode.STORAGE_AWAY:
        return storage_away(str(error), job)
    if error.code not in _AWAY | _DOUBT | _REFUSED:
        return None
    job.lock.alive()
    beside = job.ask_beside()
    if beside is not None and beside.code in _REFUSED:
        return _away(job, _CREDENTIALS_WAIT, f"{CREDENTIALS_REFUSED}: {beside}")
    if beside is not None:
        return _away(job, beside.retry_after or job.policy.away_seconds, str(beside))
    if error.code in _EVERY_TABLE and (other := _of_other_tables(job)) is not None:
        # The catalog answers from its database, and reads no table's metadata file: its storage does not answer.
        return _away(job, other.retry_after or job.policy.away_seconds, str(other))
    if error.code in _AWAY and error.retry_after:
        # Reads go on, and changes do not: Lakekeeper's maintenance mode.
        return _away(job, error.retry_after, str(error))
    return Wait(job.pause(), f"throttled: {error}") if error.code is ErrorCode.THROTTLED else None


def _of_other_tables(job: Job) -> CatalogError | None:
    """The error that all other tables meet that are asked for; None where one of them loads, or none can be found."""
    failed: CatalogError | None = None
    for other in _others(job):
        if failed is not None and job.policy.clock() > job.deadline:
            break
        try:
            job.catalog.load(other)
        except CatalogError as error:
            failed = error
        else:
            return None
        if failed.code not in _EVERY_TABLE:
            return None
    return failed


def _others(job: Job) -> Iterator[TableIdentifier]:
    """A few other tables, of both namespaces: at the end of a migration the legacy one holds what cannot be moved."""
    for namespace in dict.fromkeys((LEGACY_NAMESPACE, job.move.target_namespace)):
        mine = job.named(namespace)
        with suppress(CatalogError):  # the target's may not be there yet, and a listing proves nothing about a table
            yield from islice((each for each in job.catalog.list_tables(mine.namespace) if each != mine), _OTHERS)


def _away(job: Job, after: float, why: str) -> Wait:
    after = min(after, _LONGEST_WAIT)
    job.controlplane.warehouse_away(job.dataset.warehouse, after, why)
    return Wait(after, why)


def _alone(error: CatalogError) -> str:
    return f"{error}; only this table is refused: the catalog answers this client in the same warehouse"
