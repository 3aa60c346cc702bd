"""One dataset on the in-memory twins, everybody who touches it, and who keeps account of what was acknowledged.

``TwinStage`` arranges a dataset with its table, runs attempts as worker processes do, and plays the other programs:
writers that respect the lock, engines that do not. Every call of an attempt goes through ``handle``: there a test
lets a fault strike, and there the invariants are looked at, before each request and after each effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.support.catalog_double import CatalogDouble, LakehouseDouble
from tests.support.faults import SECONDS, Between, Crashed, Fault, Faults, PortCall
from tests.support.invariants import Account, flip_violations, request_violations, world_violations
from tests.support.outages import Outage, refusal
from tests.support.twin_operator import OperatorTwin
from tests.support.twins import WAREHOUSE, ControlPlaneTwin, DatasetRow, LogRow, MoveRow, PlaneTwin, SchemaRow
from worker.controlplane.connection import ControlPlaneAwayError
from worker.controlplane.reversal import Keep
from worker.identifiers import LEGACY_NAMESPACE, QUARANTINE_NAMESPACE, TableIdentifier, quarantine_identifier
from worker.lakehouse.port import CatalogError
from worker.moves.attempt import Mover
from worker.moves.job import Memory
from worker.moves.machine import WORKABLE, State
from worker.moves.policy import Policy
from worker.moves.ports import Action, LockLostError, Written
from worker.outcome import Park, ParkCode, Retry

if TYPE_CHECKING:
    from tests.support.twin_lock import LockTwin
    from worker.outcome import Outcome

DATASET = "d"
WORKSPACE = "ws"
NAME = "ds_d"
OLD = TableIdentifier((LEGACY_NAMESPACE,), NAME)
NEW = TableIdentifier(("sales", "europe"), NAME)
ELSEWHERE = "asia.tokyo"
SHOWING = frozenset({"load", "soak", "register", "rename"})
"""Calls after which an attempt knows something about a table."""
GUARDED = frozenset({"register", "rename", "drop"})
"""Calls right before which an attempt asks the lock's connection."""

MAY_LEAVE_A_PAIR = frozenset({ParkCode.DIVERGED, ParkCode.WITHDRAWAL_DOUBTFUL})
"""Reasons to park before the flip for which our own registration may stay: nobody may tell which side to give up."""

Strike = Callable[["Process", PortCall, Callable[[], Any]], Any]
"""Makes a call, or lets a fault strike it."""


@dataclass
class Process:
    """One worker process: it keeps what it has found out between attempts, and loses it when it dies."""

    name: str = "worker-1"
    dead: bool = False
    memory: Memory = field(default_factory=Memory)
    strike: Strike | None = None
    """What becomes of its calls, where that is not the stage's to say."""
    at: TwinStage | None = None
    """The dataset that it is at."""
    lock: LockTwin | None = None
    """Of the attempt that it is at."""
    held: tuple[bool, bool] = (False, False)
    """Whether the lock was its own when its last call but one began, and its last."""
    last_look: tuple[TableIdentifier, str] | None = None
    """The name that its last request looked at, and what it showed; None where it was another request."""
    asked_at: int = 0
    """How many commits were acknowledged when it was last shown a table; 0 where that answer was no true one."""
    met_outage: bool = False
    """In its attempt."""
    met_fault: bool = False
    """In its attempt, the loss of its lock included."""
    guarded_at: float = 0.0
    """When it last asked whether the lock is still its own."""


@dataclass(frozen=True)
class Late:
    """A request that its client has given up, and that the server has not got yet."""

    perform: Callable[[], Any]
    sent_at: float


@dataclass
class TwinStage:
    """One dataset in one database and one warehouse. Stages that share ``plane`` and ``catalog`` are neighbours."""

    policy: Policy = field(default_factory=Policy)
    catalog: CatalogDouble = field(default_factory=CatalogDouble)
    plane: PlaneTwin = field(default_factory=PlaneTwin)
    dataset: str = DATASET
    violations: list[str] = field(default_factory=list)
    cleaning: bool = False
    """Commits through the live name remove metadata files that its log has forgotten."""
    cleaned: set[str] = field(default_factory=set)
    """Metadata files that commits have cleaned up."""
    outage: Outage | None = None
    """What does not answer now."""
    request_seconds: float = 0.0
    """How long every request to the catalog takes, at the end of which it takes effect and is answered."""

    def __post_init__(self) -> None:
        self.name = f"ds_{self.dataset}"
        self.old = TableIdentifier(OLD.namespace, self.name)
        self.new = TableIdentifier(NEW.namespace, self.name)
        self.policy = replace(self.policy, clock=lambda: self.plane.now, jitter=lambda: 0.5)
        self.lakehouse = LakehouseDouble({WAREHOUSE: self.catalog})
        self.operator = OperatorTwin(self.plane)
        self.faults = Faults()
        self.strike: Strike = lambda _, call, perform: self.faults.plainly(call, perform)
        self.calls: list[PortCall] = []
        self.late: list[Late] = []
        self.neighbours: list[TwinStage] = []
        """Stages of other datasets in the same database and warehouse."""
        self.seen_at = self.plane.now
        """When the table last stood where the resolver sends readers."""
        self.longest_window = 0.0
        """Seconds for which it did not."""
        self.foreign: dict[TableIdentifier, str] = {}
        """Tables of another hand: the name that each was put under, and its uuid."""
        self.arriving = False
        """A late request is taking effect: its sender holds nothing any more."""
        for schema, place in (("s", ".".join(NEW.namespace)), ("t", ELSEWHERE)):
            self.plane.schemas[schema] = SchemaRow(WORKSPACE, place)
        self.plane.datasets[self.dataset] = DatasetRow(WORKSPACE, "s")
        first = self.catalog.create(self.old, table_uuid=f"uuid-of-{self.dataset}")
        self.account = Account(first)
        self.last_live = {self.old: self.plane.now}
        self.plane.log[self.dataset] = [LogRow(str(self.old), self.catalog.files[first].snapshot_id)]
        self.plane.moves[self.dataset] = MoveRow(
            self.dataset, WORKSPACE, str(self.old), self.name, ".".join(NEW.namespace)
        )

    # What a worker does.

    @property
    def row(self) -> MoveRow:
        """The ledger's row."""
        return self.plane.moves[self.dataset]

    @property
    def live(self) -> TableIdentifier:
        """What the resolver says."""
        return TableIdentifier.within(self.plane.resolved(self.dataset), self.name)

    def attempt(self, process: Process | None = None) -> Outcome | None:
        """One attempt by a process (a new one if none is given); None where the process died, or Postgres was away."""
        process = process or Process()
        ledger = Between(ControlPlaneTwin(self.plane, process.name), "ledger", self._handler(process))
        lakehouse = Between(self.lakehouse, "lakehouse", self._handler(process))
        mover = Mover(ledger, lakehouse, self.policy, process.memory)
        process.at, process.last_look, process.met_outage, process.met_fault = self, None, False, False
        try:
            outcome = mover.attempt(self.dataset)
        except (Crashed, ControlPlaneAwayError):
            return None
        finally:
            process.lock = None
        costs = isinstance(outcome, Retry | Park) and outcome.code not in self._true_all_the_same()
        if process.met_outage and not process.met_fault and costs:
            self.violations.append(f"an outage cost an attempt: {outcome}")
        return outcome

    def _true_all_the_same(self) -> set[ParkCode]:
        """What an attempt may have found out before it met an outage."""
        reasons = {ParkCode.SOAK_FAILED: self.catalog.broken, ParkCode.WITHDRAWAL_DOUBTFUL: self.foreign}
        return {code for code, true in reasons.items() if true}

    def _handler(self, process: Process) -> Callable[[PortCall, Callable[[], Any]], Any]:
        return lambda call, perform: self._concerned(process, call).handle(process, call, perform)

    def _concerned(self, process: Process, call: PortCall) -> TwinStage:
        """The stage of the dataset that the process is at: an urgent neighbour may come before its own."""
        if str(call) == "ledger.lock":
            process.at = next(stage for stage in (self, *self.neighbours) if stage.dataset == call.arguments[0])
        return process.at or self

    def handle(self, process: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        """One call of a process: struck or not, with a look at the invariants on both sides."""
        if process.dead:
            raise Crashed
        self.calls.append(call)
        process.held = (process.held[1], process.lock is not None and process.lock.held)
        if call.method in SHOWING:
            process.asked_at = 0

        def effect() -> Any:
            self._be_slow_or_away(process, call)
            self.violations += request_violations(self, process, call)
            if call.method in GUARDED and not (process.held[0] or self.arriving):
                self.violations.append(f"{call} without having asked whether the lock is still its own")
            if call.method in SHOWING:
                process.asked_at = len(self.account.commits)
            return perform()

        try:
            result = (process.strike or self.strike)(process, call, effect)
            self._follow(process, call, result)
        except Crashed:
            process.dead = True
            raise
        except LockLostError:
            process.met_fault = True
            raise
        finally:
            self.look()
        return result

    def _be_slow_or_away(self, process: Process, call: PortCall) -> None:
        if call.port != "catalog":
            return
        if self.request_seconds:
            self.pass_time(self.request_seconds)
        refused = refusal(self.outage, call) if self.outage else None
        if refused is not None:
            process.met_outage = True
            raise refused

    def _follow(self, process: Process, call: PortCall, result: Any) -> None:
        if str(call) == "ledger.lock":
            process.lock = result
        elif call.method == "alive":
            process.guarded_at = self.plane.now
        elif result is Written.COMMITTED and call.method == "flip":
            self.violations += flip_violations(self, process, call.arguments[1])
        elif call.method == "commit" and process.lock is not None and process.lock.reserved is not None:
            self.violations += flip_violations(self, process, process.lock.reserved)
        elif call.port == "catalog":
            process.last_look = (call.arguments[0], result.metadata_location) if call.method == "load" else None

    def look(self) -> None:
        """Look at everything that must always hold."""
        self.last_live[self.live] = self.plane.now
        if self.live in self.catalog.names:
            self.seen_at = self.plane.now
        self.longest_window = max(self.longest_window, self.plane.now - self.seen_at)
        self.violations += world_violations(self)

    # What the sweeper and time do.

    def pass_time(self, seconds: float) -> None:
        """Let time go by; the resolver names the live name all the while."""
        self.plane.pass_time(seconds)
        self.last_live[self.live] = self.plane.now
        if self.live in self.catalog.names:
            self.seen_at = self.plane.now

    def pass_time_until_due(self) -> bool:
        """Let time pass until the sweeper would send the message; False where nothing is left to do."""
        for _ in range(5):
            if self.row.state not in WORKABLE:
                return False
            if self.plane.publish(self.dataset):
                return True
            pause = self.row.not_before - self.plane.now
            self.pass_time(pause if pause > 0 else 100.0)
        return False

    def settle(self, *, attempts: int = 30) -> None:
        """Let the sweeper run until nothing is left to do."""
        for _ in range(attempts):
            if not self.pass_time_until_due():
                return
            self.attempt()
        self.violations.append(f"after {attempts} attempts still {self.row.state}: {self.row.waiting_for}")

    def late_arrive(self, *, sent_before: float | None = None) -> None:
        """Requests that were given up reach the server, those first that were sent first."""
        for request in [each for each in self.late if sent_before is None or each.sent_at < sent_before]:
            self.late.remove(request)
            self.arriving = True
            with suppress(CatalogError):
                request.perform()
            self.arriving = False
            self.look()

    # What other programs do.

    def engine_commits(self, identifier: TableIdentifier) -> None:
        """An engine that ignores the lock commits through a name, if it stands."""
        was = self.catalog.names.get(identifier)
        if was in self.catalog.files:
            location = self.catalog.commit(identifier)
            if not self.account.knows(was):  # another hand's table
                return
            self.account.acknowledge(location, was, identifier)
            if self.cleaning and identifier == self.live:
                for forgotten in {*self.catalog.files[was].log} - {*self.catalog.files[location].log}:
                    self.clean_up(forgotten)
            self.look()

    def writer_commits(self) -> bool:
        """A program that respects the lock: resolve, commit, log; False where the lock is held or the table is away.

        In a rename's window the resolver's name is empty: the writer sees that, and comes again later.
        """
        if self.dataset in self.plane.locks or self.live not in self.catalog.names:
            return False
        self.engine_commits(self.live)
        snapshot = self.catalog.files[self.catalog.names[self.live]].snapshot_id
        self.plane.log[self.dataset].append(LogRow(str(self.live), snapshot))
        return True

    def resolve(self, *, keep_new: bool) -> bool:
        """A person decides a divergence: what only the other side holds, as it is shown, is given up."""
        names, sides = self.catalog.names, self.operator.sides(self.dataset)
        kept, lost = (sides.new, sides.old) if keep_new else (sides.old, sides.new)
        if kept not in names or lost not in names or sides.only not in {None, Keep.NEW if keep_new else Keep.OLD}:
            return False
        self.account.give_up(names[lost], names[kept])
        return self.operator.resolve(self.dataset, keep_new=keep_new, lost_location=names[lost])

    def another_hand_creates(self, identifier: TableIdentifier) -> bool:
        """Another program makes a table of its own under a name that is free, whoever else wants that name."""
        if identifier in self.catalog.names:
            return False
        self.foreign[identifier] = self.catalog.files[self.catalog.create(identifier)].uuid
        self.look()
        return True

    def other_hands_leave(self) -> None:
        """Other programs drop what they made."""
        for identifier in self._names_of(self.foreign.values()):
            del self.catalog.names[identifier]
        self.foreign.clear()

    def clean_up(self, location: str) -> None:
        """Commits remove a metadata file that their log has forgotten."""
        if location in self.catalog.files:
            self.catalog.delete_file(location)
            self.cleaned.add(location)

    # What is there.

    def open_entries(self, *actions: Action) -> list[Any]:
        """Open journal entries, of these kinds where any are named."""
        return [entry for entry in self.plane.open_entries(self.dataset) if not actions or entry.action in actions]

    def pointers(self) -> set[TableIdentifier]:
        """Every name that holds the dataset's table."""
        return {name for name, location in self.catalog.names.items() if self.account.knows(location)}

    def _known_names(self) -> set[TableIdentifier]:
        """The two names of the move, every name in the journal, and quarantine where its entry says so."""
        rows = [row for row in self.plane.pointers if row.dataset_id == self.dataset]
        kept = [row.entry for row in rows if row.outcome is None and row.entry.action is Action.WITHDRAW]
        shelters = {quarantine_identifier(entry.pointer.identifier.name, entry.id) for entry in kept}
        return {self.old, self.new, *(row.entry.pointer.identifier for row in rows), *shelters}

    def end_violations(self) -> list[str]:
        """What is wrong where nothing is left to do."""
        state, live = self.row.state, self.live
        wrongs = [f"another hand's table is not under {name} any more" for name in sorted(self._foreign_moved())]
        if state is State.PARKED:
            return wrongs + self._parked_violations()
        wrong = {
            f"ends {state}": state is State.DONE,
            f"done, and {sorted(map(str, self.pointers()))} stand": self.pointers() == {live},
            f"done, and the journal is open: {self.open_entries()}": not self.open_entries(),
            "done, and an acknowledged commit is not under the live name": not self.account.missing_from(
                name for name in [self.catalog.names.get(live)] if name
            ),
        }
        return wrongs + [what for what, right in wrong.items() if not right]

    def _names_of(self, uuids: Iterable[str]) -> list[TableIdentifier]:
        wanted = {location for location, file in self.catalog.files.items() if file.uuid in set(uuids)}
        return [name for name, location in self.catalog.names.items() if location in wanted]

    def _foreign_moved(self) -> Iterator[TableIdentifier]:
        """Where another hand's table is gone. In quarantine it is taken for one that we fenced, and given back."""
        for name, uuid in self.foreign.items():
            names = self._names_of([uuid])
            if name not in names and not (names and name.namespace == (QUARANTINE_NAMESPACE,)):
                yield name

    def _parked_violations(self) -> list[str]:
        wrongs = [f"parked, and nobody knows of {name}" for name in sorted(self.pointers() - self._known_names())]
        if not self.account.knows(self.catalog.names.get(self.live)):
            wrongs.append("parked in a rename's window")
        if self.row.flipped_at is None and self.row.park_code not in MAY_LEAVE_A_PAIR:
            # Orphan-file maintenance through a registration that has fallen behind deletes what the live name needs.
            made = {entry.pointer.identifier for entry in self.open_entries(Action.REGISTER)}
            pairs = [
                name
                for name in map(str, made & self.pointers() - {self.live})
                if name not in (self.row.park_text or "")
            ]
            wrongs += [
                f"parked {self.row.park_code} before the flip beside {name}, and does not say so" for name in pairs
            ]
        return wrongs


def struck(
    stage: TwinStage,
    process: Process,
    call: PortCall,
    perform: Callable[[], Any],
    fault: Fault,
    meanwhile: Callable[[], object] = lambda: None,
) -> Any:
    """The call with the fault, the time that it takes, and what others do at the end of that time."""
    process.met_fault = True
    stage.pass_time(SECONDS.get(fault, 0.0))
    meanwhile()
    if fault is Fault.LATE:
        stage.late.append(Late(perform, stage.plane.now))
    return stage.faults.strike(fault, call, perform, process.lock)
