"""Give a queued dataset its place: make the second name, prove it, look again, flip.

Responsible for: the way from ``queued`` to ``flipped``, or to ``done`` where no second pointer is left. It is
optimistic: a clean first attempt asks the catalog four times (old name, register, new name, old name again);
everything else is decided by the look at both names.
Must not know: how a pointer is withdrawn, how a table is renamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind, Table
from worker.moves.flipping import flip, flip_of
from worker.moves.goal import Goal, goal_of
from worker.moves.look import NOT_LOOKED, Evidence, Gone, NotLooked, Sighting, Step, There, decide, refuse_difference
from worker.moves.machine import State
from worker.moves.ports import Action, Closed, Pointer, Strategy
from worker.moves.renaming import ask_as_a_reader, rename
from worker.moves.rights import may_withdraw
from worker.moves.strays import withdraw_strays
from worker.moves.withdraw import withdraw
from worker.outcome import Done, Outcome, Park, ParkCode, Retry, Wait

if TYPE_CHECKING:
    from worker.moves.job import Job

_TURNS_A_WAREHOUSE = 2
"""Datasets that must be refused a free name and be renamed to it: one odd table never turns a warehouse."""

_REFUSALS = frozenset({ErrorCode.ALREADY_EXISTS, ErrorCode.NOT_OFFERED, ErrorCode.FORBIDDEN})
"""How a server refuses a second name: it holds a table once, it does not register at all, or it wants each table below
its namespace's own location (Polaris; a rename keeps the location). A right that is missing is missed by both."""

_REFUSALS_BELIEVED = 7
"""Attempts, five minutes, after which a refusal of a free name is believed: one may be a gateway's, and pass."""


def place(job: Job) -> Outcome:
    """One attempt at the way from ``queued``. Raises CatalogError, SoakError, LockLostError."""
    goal = goal_of(job)
    if isinstance(goal, Park):
        return goal
    return withdraw_strays(job, keep=goal.target) or _Placing(job, goal).converge()


class _Placing:
    """The loop between the looks: when the second one saw the source move ``second_looks`` times, it ends."""

    def __init__(self, job: Job, goal: Goal) -> None:
        self.job = job
        self.goal = goal
        self.entries = [e for e in job.open(Action.REGISTER) if e.pointer.identifier == goal.target]
        self.looked = False
        """The new name was asked for in this attempt."""

    def converge(self) -> Outcome:
        old = self.job.look(self.goal.source)
        known = bool(self.entries) or self._may_stand_already() or isinstance(old, Gone)
        new: Sighting | NotLooked = self.job.look(self.goal.target) if known else NOT_LOOKED
        self.looked = known
        moved = 0
        while moved < self.job.policy.second_looks:
            step = decide(old, new, self._evidence())
            match step, old, new:
                case Step.MAKE, There(table), _:
                    made = self._make(table)
                    if not isinstance(made, There):
                        return made
                    new = made
                case Step.REPLACE, There(table), There(stale):
                    ended = self._replace(stale, keeper=table)
                    if ended is not None:
                        return ended
                    new = Gone()
                case Step.GO_ON, There(table), There(standing):
                    self._soak(standing, table)
                    forbidden = may_withdraw(self.job, self.goal, table, standing)
                    if forbidden is not None:
                        return forbidden
                    again = self.job.look(self.goal.source)
                    if isinstance(again, There) and again.table.metadata_location == table.metadata_location:
                        return self._flip(standing, left=table, state=State.FLIPPED)
                    old, moved = again, moved + 1
                case Step.ADOPT, _, There(standing):
                    self.job.soak(standing)
                    return self._flip(standing, left=standing, state=State.DONE)
                case _:
                    return self._end(step)
        return Retry(self.job.pause(), f"{self.goal.source} moved under every look", ParkCode.SOURCE_MOVING)

    def _may_stand_already(self) -> bool:
        """A way back goes to a name that was there before; an adopted place was made by another hand."""
        renamed = any(e.pointer.identifier == self.goal.target for e in self.job.open(Action.RENAME))
        return renamed or self.goal.adopted or self.goal.after is None

    def _evidence(self) -> Evidence:
        journaled = self.entries[0].pointer.table_uuid if self.entries else None
        return Evidence(
            self.job.move.table_uuid or journaled,
            self.job.dataset.last_snapshot_id,
            frozenset(entry.pointer.metadata_location for entry in self.entries),
            self.job.move.given_up,
            placed=self.goal.adopted,
        )

    def _soak(self, standing: Table, table: Table) -> None:
        refuse_difference(standing, table)
        self.job.soak(standing)

    def _make(self, table: Table) -> There | Outcome:
        """Make the second name, by the strategy of the warehouse; the new name's look, or how the attempt ends."""
        if self.goal.adopted:
            return self._adopted_but_absent()
        if self.job.strategy is Strategy.RENAME:
            standing = None if self.looked else ask_as_a_reader(self.job, self.goal)
            self.looked = True
            return standing or rename(self.job, self.goal, table)
        new, refused = self._register(table)
        match new:
            case There():
                return new
            case Gone() if refused:
                return self._refused(table)
            case Gone():
                return self._again(f"{self.goal.target} does not stand after it was registered")
            case _:
                raise new.error

    def _register(self, table: Table) -> tuple[Sighting, bool]:
        """Journal the intention, ask for the second name, and look: whatever the answer, the look decides.

        The second value: the server refused, for a reason that a rename may not have.
        """
        job, target = self.job, self.goal.target
        job.ensure_namespace(target.namespace)
        pointer = Pointer(target, table.uuid, table.metadata_location, table.sequence_number)
        entry = job.controlplane.journal(job.claimed, Action.REGISTER, pointer)
        self.entries.append(entry)
        job.guard()
        refused = False
        try:
            job.catalog.register(target, table.metadata_location)
        except CatalogError as error:
            refused = error.code in _REFUSALS
            if error.code is ErrorCode.NAMESPACE_MISSING:
                job.forget_namespace(target.namespace)
            elif error.kind is not ErrorKind.UNKNOWN and not refused:
                if error.kind is ErrorKind.PERMANENT and isinstance(job.look(target), Gone):
                    job.controlplane.close(entry, Closed.VOID)
                raise
        new = job.look(target)
        if refused and not (isinstance(new, There) and new.table.metadata_location == table.metadata_location):
            # Another hand made what stands there, if anything: this entry says nothing about where it grew from.
            job.controlplane.close(entry, Closed.VOID)
            self.entries.remove(entry)
        return new, refused

    def _refused(self, table: Table) -> Outcome:
        """The name is free and yet refused: a catalog that holds a table once, or something hidden under the name."""
        job, target = self.job, self.goal.target
        if job.strategy_given:
            why = f"the catalog refuses to register {target}, which is free: it may hold a table only once"
            if job.move.attempts < _REFUSALS_BELIEVED:
                return Retry(self.job.pause(), why, ParkCode.REFUSED)
            return Park(ParkCode.REFUSED, why, "let REROOT_STRATEGY be auto or rename, then `reroot retry`")
        if job.catalog.view_exists(target):
            return Park(
                ParkCode.NAME_TAKEN,
                f"{target} is a view",
                "rename or drop that view, or give the dataset another schema, then `reroot retry`",
            )
        outcome = rename(job, self.goal, table)
        if isinstance(outcome, Done):
            seen = job.controlplane.note_refusal(job.claimed)
            if seen >= _TURNS_A_WAREHOUSE:
                reason = f"free names are refused to register and not to rename ({seen} datasets)"
                job.controlplane.note_strategy(job.dataset.warehouse, Strategy.RENAME, reason)
        return outcome

    def _replace(self, stale: Table, keeper: Table) -> Outcome | None:
        """Withdraw a pointer that the old name has left behind, so that a fresh one can be made."""
        ago = self.job.move.target_named_ago
        if ago is not None and ago < self.job.policy.grace_seconds:
            return Wait(self.job.policy.grace_seconds - ago, f"readers may still hold {self.goal.target}")
        pointer = Pointer(self.goal.target, stale.uuid, stale.metadata_location, stale.sequence_number)
        ended = withdraw(self.job, pointer, keeper, registered=True)
        if ended is None:
            self._close_entries(Closed.WITHDRAWN)
        return ended

    def _close_entries(self, how: Closed) -> None:
        for entry in self.entries:
            self.job.controlplane.close(entry, how)
        self.entries.clear()

    def _flip(self, standing: Table, left: Table, state: State) -> Outcome:
        if state is State.FLIPPED:
            self.job.note_once(Strategy.REGISTER, "two names may hold one table")
        return flip(self.job, flip_of(self.job, self.goal, standing, left, state, [e.id for e in self.entries]))

    def _end(self, step: Step | Park | CatalogError) -> Outcome:
        match step:
            case CatalogError():
                raise step
            case Park(ParkCode.NAME_TAKEN):
                self._close_entries(Closed.VOID)
                return step
            case Park(ParkCode.TABLE_MISSING) if self.job.open(Action.RENAME):
                # It may stand where an open rename put it, whatever was just seen there: not yet a case for a person.
                return Retry(self.job.pause(), step.why, ParkCode.TABLE_MISSING)
            case Park():
                return step
            case _:
                return self._again(f"nothing follows from {step}")

    def _adopted_but_absent(self) -> Outcome:
        if self.goal.after is None:
            return rename_home(self.goal)
        return Park(
            ParkCode.PLACED_ELSEWHERE,
            f"datasets.iceberg_namespace says {self.goal.after}, where no table stands; {self.goal.source} still does",
            "readers miss the table: clear the column or register the table there, then `reroot retry`",
        )

    def _again(self, why: str) -> Retry:
        return Retry(self.job.pause(), why)


def rename_home(goal: Goal) -> Park:
    """The column says legacy already, where no table stands."""
    return Park(
        ParkCode.PLACED_ELSEWHERE,
        f"datasets.iceberg_namespace is NULL, and no table stands under {goal.target}; {goal.source} still does",
        "readers miss the table: set the column or register the table there, then `reroot retry`",
    )
