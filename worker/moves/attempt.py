"""One attempt at a dataset: peek, lock, claim, settle, then place or retire, and write how it ended.

Responsible for: the order of these, and the limit of attempts.
Must not know: Celery, SQL, which catalog it is, what an outage is (``outage``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from worker.lakehouse.port import Catalog, CatalogError, Lakehouse, SoakError, SoakFault
from worker.moves.job import Job, Memory, OutOfTimeError
from worker.moves.machine import WORKABLE, State
from worker.moves.outage import Watched, ended_by, excused, storage_away
from worker.moves.place import place
from worker.moves.ports import Action, ControlPlane, HeldError, Lock, LockLostError, Move
from worker.moves.renaming import settle
from worker.moves.retire import retire
from worker.moves.strays import finish_withdrawal, take_back
from worker.outcome import Busy, Done, Ignored, Outcome, Park, ParkCode, Retry, Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.moves.policy import Policy


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
        while move is not None and move.urgent not in {None, dataset_id} and self._has_time(deadline):
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

    def _has_time(self, deadline: float) -> bool:
        """Whether half of the time is left, so that what has not begun may still end well."""
        return deadline - self.policy.clock() > self.policy.deadline_seconds / 2

    def _locked(self, move: Move, lock: Lock, deadline: float) -> Outcome:
        try:
            claimed = self.controlplane.claim(move)
        except HeldError as error:
            self.controlplane.note_busy(move, self.policy.busy_after_seconds)
            return Busy(self.policy.busy_after_seconds, str(error))
        if claimed is None:
            return Ignored("another attempt was faster")
        warehouse = claimed.dataset.warehouse
        # Readers miss the table of an open rename, and reads may be enough to settle it.
        renaming = any(entry.action is Action.RENAME for entry in claimed.entries)
        if claimed.away_for is not None and not renaming:
            outcome: Outcome = Wait(claimed.away_for, f"warehouse {warehouse} is away")
        elif not self._has_time(deadline):
            outcome = Wait(self.policy.busy_after_seconds, "urgent datasets took the time of this attempt")
        else:
            watched = Watched(self.lakehouse.catalog(warehouse))
            catalog = cast("Catalog", watched)
            job = Job(claimed, lock, self.controlplane, catalog, self.policy, self.memory, deadline)
            outcome = _ended(job, watched)
            if claimed.probing and watched.works and not isinstance(outcome, Wait):
                self.controlplane.warehouse_back(warehouse)
        if not isinstance(outcome, Done):
            lock.end(claimed, outcome)
        return outcome


def _ended(job: Job, watched: Watched) -> Outcome:
    """The attempt's end; before a park our registrations are taken back."""
    try:
        outcome = _run(job)
        if not isinstance(outcome, Done):
            job.lock.give_back()  # what follows may ask for long, and closes entries that a flip would close as well
        outcome = _limited(excused(outcome, job, watched), job)
        if isinstance(outcome, Park):
            return take_back(job, outcome, lambda error: ended_by(error, job))
    except HeldError as error:
        return Busy(job.policy.busy_after_seconds, str(error))
    return outcome


def _run(job: Job) -> Outcome:
    try:
        return _settled(job) or _proceed(job)
    except CatalogError as error:
        return ended_by(error, job)
    except SoakError as error:
        return _not_readable(error, job)
    except OutOfTimeError:
        return Retry(job.pause(), f"the attempt took longer than {job.policy.deadline_seconds:g} s")


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
            "the attempts are used up; the last one was killed or could not settle a rename",
            "`reroot show`, then `reroot retry`",
        )
    return place(job) if job.move.state is State.QUEUED else retire(job)


def _limited(outcome: Outcome, job: Job) -> Outcome:
    """A retry that would be one too many parks the job with the retry's own code. One that is urgent comes soon."""
    if isinstance(outcome, Retry) and outcome.urgent:
        return replace(outcome, after=_soon(job))
    if isinstance(outcome, Wait) and job.open(Action.RENAME):
        return replace(outcome, after=min(outcome.after, _soon(job)))
    if isinstance(outcome, Retry) and job.move.attempts >= job.policy.max_attempts:
        return Park(
            outcome.code, f"{outcome.why} ({job.move.attempts} attempts)", "mend the cause, then `reroot retry`"
        )
    return outcome


def _not_readable(error: SoakError, job: Job) -> Outcome:
    """How an attempt ends whose soak did not pass. The text says whether the old name can be read."""
    if error.fault is SoakFault.OUTAGE:
        return storage_away(str(error), job)
    why = f"{error}{_as_before(error, job)}"
    if error.fault is SoakFault.UNSUPPORTED:
        return Park(
            ParkCode.SOAK_UNSUPPORTED,
            f"Reroot cannot read a part of the table: {why}",
            f"if your readers can read the table: `reroot retry {job.move.dataset_id} --accept soak_unsupported`",
        )
    return Retry(job.pause(), f"the table cannot be read: {why}", ParkCode.SOAK_FAILED)


def _as_before(error: SoakError, job: Job) -> str:
    """Whether the old name can be read. Where it cannot, the move did not cause the fault."""
    if job.move.state is not State.QUEUED:
        return ""
    try:
        job.catalog.soak(job.catalog.load(job.left))
    except SoakError as other:
        return f"; {job.left} cannot be read either" if other.fault is error.fault else ""
    except CatalogError:
        return ""
    return f"; {job.left} can be read"


def _soon(job: Job) -> float:
    """Seconds until an open rename is looked at again: few at first, more the longer it is open."""
    opened_ago = max((entry.opened_ago for entry in job.open(Action.RENAME)), default=0.0)
    least, most = job.policy.open_rename_seconds
    return min(max(least, opened_ago), most)
