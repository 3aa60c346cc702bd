"""One attempt at a dataset: peek, lock, claim, settle, then place or retire, and write how it ended.

Responsible for: the order of these, and the one mapping from a catalog's error to an end.
Must not know: Celery, SQL, which catalog it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from worker.identifiers import LEGACY_NAMESPACE
from worker.lakehouse.port import CatalogError, ErrorCode, Lakehouse, SoakError, SoakFault
from worker.moves.job import Job, Memory, OutOfTimeError
from worker.moves.machine import WORKABLE, State
from worker.moves.place import place
from worker.moves.ports import CREDENTIALS_REFUSED, Action, ControlPlane, HeldError, Lock, LockLostError, Move
from worker.moves.renaming import settle
from worker.moves.retire import retire
from worker.moves.strays import finish_withdrawal, take_back
from worker.outcome import Busy, Done, Ignored, Outcome, Park, ParkCode, Retry, Wait, backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.moves.policy import Policy

_AWAY = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.UNCLEAR, ErrorCode.UNREADABLE, ErrorCode.FILE_MISSING})
_OF_NAMES = frozenset({ErrorCode.TABLE_MISSING, ErrorCode.NAMESPACE_MISSING, ErrorCode.ALREADY_EXISTS})
"""What a catalog says of names: it may have been true a moment ago, or of a request sent twice. The next look tells."""
_MAX_RETRY_AFTER = 300.0
_CREDENTIALS_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class Mover:
    """Runs attempts, one at a time; one per worker process, built after the fork."""

    controlplane: ControlPlane
    lakehouse: Lakehouse
    policy: Policy
    memory: Memory = field(default_factory=Memory)
    ended: Callable[[Outcome], None] = lambda _: None
    """Called with the end of an attempt at an urgent dataset, which is not the one of the message."""

    def attempt(self, dataset_id: str) -> Outcome:
        """One attempt, after those at urgent datasets; the deadline is for all of them.

        Nothing is written for a message that has nothing to do. Raises what the control plane raises when it is away:
        then nothing was written, and the sweeper finds the job.
        """
        deadline = self.policy.clock() + self.policy.deadline_seconds
        move = self.controlplane.peek(dataset_id)
        while move is not None and move.urgent not in {None, dataset_id} and self.policy.clock() < deadline:
            if self.controlplane.take(move.urgent):
                self.ended(self._attempt(self.controlplane.peek(move.urgent), deadline, urgent=True))
            move = self.controlplane.peek(dataset_id)
        return self._attempt(move, deadline, urgent=move is not None and move.urgent == dataset_id)

    def _attempt(self, move: Move | None, deadline: float, *, urgent: bool) -> Outcome:
        if move is None:
            return Ignored("unknown to the ledger")
        if move.state not in WORKABLE or not move.due:
            return Ignored(f"{move.state}, nothing is due")
        patient = urgent or move.busy_count >= self.policy.busy_limit
        queue_for = self.policy.queue_for_seconds if patient else None
        with self.controlplane.lock(move.dataset_id, queue_for=queue_for) as lock:
            if lock is None:
                self.controlplane.note_busy(move, self.policy.busy_after_seconds)
                return Busy(self.policy.busy_after_seconds, "somebody else holds the dataset's lock")
            try:
                return self._locked(move, lock, deadline)
            except LockLostError:
                return Retry(0, "the lock's connection was lost: nothing was written, the sweeper sends it again")

    def _locked(self, move: Move, lock: Lock, deadline: float) -> Outcome:
        try:
            claimed = self.controlplane.claim(move)
        except HeldError as error:
            self.controlplane.note_busy(move, self.policy.busy_after_seconds)
            return Busy(self.policy.busy_after_seconds, str(error))
        if claimed is None:
            return Ignored("another attempt was faster")
        warehouse = claimed.dataset.warehouse
        if claimed.away_for is not None:
            outcome: Outcome = Wait(claimed.away_for, f"warehouse {warehouse} is away")
        else:
            job = Job(
                claimed,
                lock,
                self.controlplane,
                self.lakehouse.catalog(warehouse),
                self.policy,
                self.memory,
                deadline,
            )
            outcome = _ended(job)
            if claimed.probing and not isinstance(outcome, Wait):
                self.controlplane.warehouse_back(warehouse)
        if not isinstance(outcome, Done):
            lock.end(claimed, outcome)
        return outcome


def _ended(job: Job) -> Outcome:
    """The attempt's end; before a park our registrations are taken back."""
    try:
        outcome = _limited(_run(job), job)
        if isinstance(outcome, Park):
            return take_back(job, outcome, lambda error: _ended_by(error, job))
    except HeldError as error:
        return Busy(job.policy.busy_after_seconds, str(error))
    return outcome


def _run(job: Job) -> Outcome:
    try:
        return _settled(job) or _proceed(job)
    except CatalogError as error:
        return _ended_by(error, job)
    except SoakError as error:
        return _not_readable(error, job)
    except OutOfTimeError:
        return Retry(_pause(job), f"the attempt took longer than {job.policy.deadline_seconds:g} s")


def _settled(job: Job) -> Outcome | None:
    """An open rename, then whatever is in quarantine, come first, also when the attempts are used up."""
    for entry in job.open(Action.RENAME):
        ended = settle(job, entry)
        if ended is not None:
            return ended
    for entry in job.open(Action.WITHDRAW):
        ended = finish_withdrawal(job, entry)
        if ended is not None:
            return ended
    return None


def _proceed(job: Job) -> Outcome:
    if job.move.attempts > job.policy.max_attempts:
        return Park(
            ParkCode.EXHAUSTED,
            "the attempts are used up, and the last was killed",
            "`reroot show`, then `reroot retry`",
        )
    return place(job) if job.move.state is State.QUEUED else retire(job)


def _limited(outcome: Outcome, job: Job) -> Outcome:
    """A retry that would be one too many parks the job with the retry's own code."""
    if isinstance(outcome, Retry) and not outcome.urgent and job.move.attempts >= job.policy.max_attempts:
        return Park(
            outcome.code, f"{outcome.why} ({job.move.attempts} attempts)", "mend the cause, then `reroot retry`"
        )
    return outcome


def _ended_by(error: CatalogError, job: Job) -> Outcome:
    """How an attempt ends by a catalog's error that no step could make sense of."""
    match error.code:
        case ErrorCode.THROTTLED:
            after = min(error.retry_after or _pause(job), _MAX_RETRY_AFTER)
            return Wait(after, f"throttled: {error}")
        case ErrorCode.UNAUTHORIZED:
            return _away(job, _CREDENTIALS_WAIT, f"{CREDENTIALS_REFUSED}: {error}")
        case ErrorCode.FORBIDDEN:
            return Park(ParkCode.FORBIDDEN, str(error), "grant what is missing, then `reroot retry`")
        case code if code in _AWAY:
            return _one_or_all(error, job)
        case code if code in _OF_NAMES:
            return Retry(_pause(job), str(error), ParkCode.REFUSED)
        case _:
            return Park(ParkCode.REFUSED, str(error), "mend what the catalog refuses, then `reroot retry`")


def _one_or_all(error: CatalogError, job: Job) -> Outcome:
    """Is it this table, or the warehouse as a whole? Ask for something else: the legacy namespace."""
    try:
        job.catalog.namespace_exists((LEGACY_NAMESPACE,))
    except CatalogError as other:
        after = min(other.retry_after or job.policy.away_seconds, _MAX_RETRY_AFTER)
        return _away(job, after, str(other))
    return Retry(_pause(job), str(error), ParkCode.TABLE_UNREADABLE)


def _not_readable(error: SoakError, job: Job) -> Outcome:
    """How an attempt ends whose soak did not pass, with what readers of the old name find."""
    why = f"{error}{_as_before(error, job)}"
    if error.fault is SoakFault.UNSUPPORTED:
        return Park(
            ParkCode.SOAK_UNSUPPORTED,
            f"the table cannot be proved readable, because Reroot cannot read a part of it: {why}",
            f"if your readers can: `reroot retry {job.move.dataset_id} --accept soak_unsupported`",
        )
    return Retry(_pause(job), f"not readable as a reader reads it: {why}", ParkCode.SOAK_FAILED)


def _as_before(error: SoakError, job: Job) -> str:
    """Whether the name that readers use now reads no better: then the move did not cause it."""
    if error.fault is SoakFault.OUTAGE or job.move.state is not State.QUEUED:
        return ""
    try:
        job.catalog.soak(job.catalog.load(job.left))
    except SoakError as other:
        return f"; {job.left} reads no better" if other.fault is error.fault else ""
    except CatalogError:
        return ""
    return f"; {job.left} reads well"


def _away(job: Job, after: float, why: str) -> Wait:
    job.controlplane.warehouse_away(job.dataset.warehouse, after, why)
    return Wait(after, why)


def _pause(job: Job) -> float:
    return backoff(job.move.attempts, job.policy.jitter())
