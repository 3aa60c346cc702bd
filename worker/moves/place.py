"""Give a queued dataset its place: make the second pointer, prove it, look again, flip.

Responsible for: the way from ``queued`` to ``flipped``. It is optimistic: a clean first attempt asks the catalog four
times (old name, register, new name, old name again); everything else is decided by the look at both names.
Must not know: how a pointer is withdrawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind, Table
from worker.moves.look import NOT_LOOKED, Evidence, Gone, NotLooked, Sighting, Step, There, decide, refuse_difference
from worker.moves.machine import State
from worker.moves.ports import Action, Closed, Flip, Pointer, Written
from worker.moves.strays import withdraw_strays
from worker.moves.withdraw import withdraw
from worker.outcome import Busy, Done, Outcome, Park, ParkCode, Retry, backoff

if TYPE_CHECKING:
    from worker.identifiers import TableIdentifier
    from worker.moves.job import Job


def place(job: Job) -> Outcome:
    """One attempt at the way from ``queued`` to ``flipped``. Raises CatalogError, SoakError, LockLostError."""
    dataset = job.dataset
    if not dataset.exists:
        return withdraw_strays(job, keep=job.left) or Park(
            ParkCode.DATASET_DELETED, "the dataset was deleted before it was moved", "nothing is left to do for it"
        )
    if dataset.iceberg_namespace is not None:
        return _placed_already(job, dataset.iceberg_namespace)
    if dataset.place is None:
        code = dataset.no_place or ParkCode.NO_PLACE
        return withdraw_strays(job, keep=job.left) or Park(
            code,
            "its schema or catalog is gone, or belongs to another workspace",
            "give it a schema, then `reroot retry`",
        )
    target = job.named(dataset.place)
    return withdraw_strays(job, keep=target) or _Placing(job, target, dataset.place, adopt=False).converge()


def _placed_already(job: Job, namespace: str) -> Outcome:
    """Somebody else has set the column: go on from there if it is the place we meant, else leave it to a person."""
    live = job.named(namespace)
    if namespace not in {job.dataset.place, job.move.target_namespace}:
        return withdraw_strays(job, keep=live) or Park(
            ParkCode.PLACED_ELSEWHERE,
            f"datasets.iceberg_namespace is {namespace} already, not {job.dataset.place}",
            "nothing, if that is right: the resolver names it; else see docs/operations.md",
        )
    return withdraw_strays(job, keep=live) or _Placing(job, live, namespace, adopt=True).converge()


class _Placing:
    """The loop between the looks: when the second one saw the source move ``second_looks`` times, it ends."""

    def __init__(self, job: Job, target: TableIdentifier, namespace: str, *, adopt: bool) -> None:
        self.job = job
        self.source = job.left
        self.target = target
        self.namespace = namespace
        self.adopt = adopt
        self.entries = [e for e in job.open(Action.REGISTER) if e.pointer.identifier == target]

    def converge(self) -> Outcome:
        old = self.job.look(self.source)
        known = bool(self.entries) or self.adopt or isinstance(old, Gone)
        new: Sighting | NotLooked = self.job.look(self.target) if known else NOT_LOOKED
        moved = 0
        while moved < self.job.policy.second_looks:
            step = decide(old, new, self._evidence())
            match step, old, new:
                case Step.MAKE, There(table), _:
                    if self.adopt:
                        return self._adopted_but_absent()
                    new = self._register(table)
                    if isinstance(new, Gone):
                        return self._again(f"{self.target} does not stand after it was registered")
                case Step.REPLACE, There(table), There(stale):
                    ended = self._replace(stale, keeper=table)
                    if ended is not None:
                        return ended
                    new = Gone()
                case Step.GO_ON, There(table), There(standing):
                    refuse_difference(standing, table)
                    self.job.catalog.soak(standing)
                    again = self.job.look(self.source)
                    if isinstance(again, There) and again.table.metadata_location == table.metadata_location:
                        return self._flip(standing, left=table)
                    old, moved = again, moved + 1
                case Step.ADOPT, _, There(standing):
                    self.job.catalog.soak(standing)
                    return self._flip(standing, left=standing)
                case _:
                    return self._end(step)
        return Retry(self._pause(), f"{self.source} moved under every look", ParkCode.SOURCE_MOVING)

    def _evidence(self) -> Evidence:
        journaled = self.entries[0].pointer.table_uuid if self.entries else None
        return Evidence(
            self.job.move.table_uuid or journaled,
            self.job.dataset.last_snapshot_id,
            frozenset(entry.pointer.metadata_location for entry in self.entries),
        )

    def _register(self, table: Table) -> Sighting:
        """Journal the intention, ask for the second name, and look: whatever the answer, the look decides."""
        job = self.job
        job.ensure_namespace(self.target.namespace)
        pointer = Pointer(self.target, table.uuid, table.metadata_location, table.sequence_number)
        entry = job.controlplane.journal(job.claimed, Action.REGISTER, pointer)
        self.entries.append(entry)
        job.guard()
        taken = False
        try:
            job.catalog.register(self.target, table.metadata_location)
        except CatalogError as error:
            taken = error.code is ErrorCode.ALREADY_EXISTS
            if error.code is ErrorCode.NAMESPACE_MISSING:
                job.forget_namespace(self.target.namespace)
            elif error.kind is not ErrorKind.UNKNOWN and not taken:
                raise
        new = job.look(self.target)
        if taken and isinstance(new, There) and new.table.metadata_location != table.metadata_location:
            # Another hand made what stands there, so this entry says nothing about where it grew from.
            job.controlplane.close(entry, Closed.VOID)
            self.entries.remove(entry)
        return new

    def _replace(self, stale: Table, keeper: Table) -> Outcome | None:
        """Withdraw a registration that the old name has left behind, so that a fresh one can be made."""
        pointer = Pointer(self.target, stale.uuid, stale.metadata_location, stale.sequence_number)
        ended = withdraw(self.job, pointer, keeper, registered=True)
        if ended is None:
            self._close_entries(Closed.WITHDRAWN)
        return ended

    def _close_entries(self, how: Closed) -> None:
        for entry in self.entries:
            self.job.controlplane.close(entry, how)
        self.entries.clear()

    def _flip(self, standing: Table, left: Table) -> Outcome:
        flip = Flip(
            namespace=self.namespace,
            left=self.source,
            adopt=self.adopt,
            table_uuid=standing.uuid,
            old_location=left.metadata_location,
            old_sequence_number=left.sequence_number,
            snapshot_id=standing.snapshot_id,
            row_count=standing.row_count,
            grace_seconds=self.job.policy.grace_seconds,
            entry_ids=tuple(entry.id for entry in self.entries),
        )
        match self.job.lock.flip(self.job.claimed, flip):
            case Written.COMMITTED:
                return Done(State.FLIPPED)
            case Written.ROWS_BUSY:
                return Busy(self.job.policy.busy_after_seconds, "another program holds a row that the flip writes")
            case Written.COLUMN_SET:
                return Retry(0, "datasets.iceberg_namespace was set by another hand during the attempt")
            case Written.SUPERSEDED:
                return Retry(0, "the claim was taken over")

    def _end(self, step: Step | Park | CatalogError) -> Outcome:
        match step:
            case CatalogError():
                raise step
            case Park(ParkCode.NAME_TAKEN):
                self._close_entries(Closed.VOID)
                return step
            case Park():
                return step
            case _:
                return self._again(f"nothing follows from {step}")

    def _adopted_but_absent(self) -> Outcome:
        return Park(
            ParkCode.PLACED_ELSEWHERE,
            f"datasets.iceberg_namespace says {self.namespace}, where no table stands; {self.source} still does",
            "readers miss the table: clear the column or register the table there, then `reroot retry`",
        )

    def _again(self, why: str) -> Retry:
        return Retry(self._pause(), why)

    def _pause(self) -> float:
        return backoff(self.job.move.attempts, self.job.policy.jitter())
