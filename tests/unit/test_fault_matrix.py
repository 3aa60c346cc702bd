"""Crash and fault matrix: every call of a move, every way in which it can fail, every way of being sent again.

Enumerated, not sampled, on the in-memory twins of ledger and lock (``tests/contract`` holds them against Postgres)
and on the catalog double. Invariants are looked at before each request and after each effect, and each run must end
where its scene says. Single faults run always, pairs of faults by ``make nightly``.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.faults import SECONDS, Fault, PortCall, faults_of
from tests.support.nightly import NIGHTLY, QUICK
from tests.support.outages import Outage, refusal
from tests.support.scenes import SCENES, Scene
from tests.support.twin_stage import OLD, Process, TwinStage, struck
from worker.lakehouse.port import Catalog
from worker.moves.machine import WORKABLE, State
from worker.moves.ports import ControlPlane, Lock, Strategy
from worker.outcome import MAX_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(28_800 if NIGHTLY else 300)

ARRIVES_AT: Final = 4
"""A late request arrives before the fourth request after it: the next attempt has looked around by then."""
OTHER_WORKER: Final = "worker-2"


PORTS: Final = {
    name: [method for method in vars(protocol) if not method.startswith("_")]
    for name, protocol in (("ledger", ControlPlane), ("lock", Lock), ("catalog", Catalog))
}
NOT_ASKED: Final = {
    "ledger.take": "only where another dataset is urgent",
    "ledger.note_busy": "only where another holds the lock: by the redelivery in the middle of it",
    "ledger.warehouse_away": "only after a fault: by the pairs of faults",
    "ledger.warehouse_back": "the same",
    "lock.end": "the same",
    "catalog.snapshots": "an operator's question, no attempt's",
}


class Redelivery(StrEnum):
    """How the job comes again."""

    SWEEPER = "sent by the sweeper when it is due"
    AGAIN = "the same message at once, then the sweeper"
    MEANWHILE = "the same message to another worker in the middle of it"
    RETRIED = "by the sweeper; what is parked is tried again by an operator, and again when other hands have left"


class Writing(StrEnum):
    """Who commits, right after the faulted attempt where nothing else is said."""

    NOBODY = "nobody"
    WRITER = "a program that respects the lock"
    ENGINE = "an engine that does not, through the old name"
    AMIDST = "such an engine in the middle of the attempt"


COMBINED: Final = (
    *((Redelivery.SWEEPER, writing) for writing in Writing),
    *((Redelivery.AGAIN, writing) for writing in (Writing.NOBODY, Writing.WRITER)),
    *((Redelivery.MEANWHILE, writing) for writing in (Writing.NOBODY, Writing.ENGINE)),
    *((Redelivery.RETRIED, writing) for writing in (Writing.NOBODY, Writing.ENGINE)),
)


PER_FAULT: Final = len(COMBINED) if NIGHTLY else 1 if QUICK else 3
"""How many of them each fault of each call is run with, in turn."""
PER_CALL: Final = len(Outage) if NIGHTLY else 1 if QUICK else 2
"""How many outages begin at each call, in turn."""
OUTLASTS: Final = MAX_ATTEMPTS + 2
"""Attempts that are made during an outage."""
LEAST_SECONDS: Final = 60.0
"""How long so many attempts take at least: whoever waits for a system does not beat on it."""


@dataclass
class Run:
    """One scene, struck at chosen calls (counted from the scene's beginning)."""

    scene: Scene
    faults: dict[int, Fault] = field(default_factory=dict)
    redelivery: Redelivery = Redelivery.SWEEPER
    writing: Writing = Writing.NOBODY
    outage: tuple[int, Outage] | None = None
    """An outage, and the call at which it begins."""
    stage: TwinStage = field(init=False)
    calls: list[PortCall] = field(init=False)
    """Every call up to the end."""
    struck: list[tuple[PortCall, Fault]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stage = self.scene.build()
        self.stage.calls.clear()
        self.stage.strike = self._strike
        self._since_late = self._retries = 0

    def __str__(self) -> str:
        where = ", ".join(f"{fault} at {call}" for call, fault in self.struck)
        if self.outage is not None:
            where = f"{self.outage[1]} from call {self.outage[0]} on, {self.calls[self.outage[0]]}"
        return f"{self.scene.name}: {where} ({self.redelivery}; {self.writing})"

    def _strike(self, process: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        at = len(self.stage.calls) - 1
        fault = self.faults.get(at)
        if self.outage is not None and at == self.outage[0]:
            self._away(self.outage[1], process, call)
        if call.port == "catalog" and self.stage.late:
            self._since_late += 1
            if self._since_late == ARRIVES_AT:
                self.stage.late_arrive()
                self._since_late = 0
        if fault is None:
            return self.stage.faults.plainly(call, perform)
        self.struck.append((call, fault))
        if self.writing is Writing.AMIDST:
            self.stage.engine_commits(OLD)
        return struck(self.stage, process, call, perform, fault, self._meanwhile(process))

    def _away(self, outage: Outage, process: Process, call: PortCall) -> None:
        self.stage.outage, self._began = outage, self.stage.plane.now
        refused = refusal(outage, call)
        if refused is not None:
            process.met_outage = True
            raise refused

    def _outlast(self, made: int, attempts: int, *, met: bool) -> None:
        """One attempt was made during the outage: it costs nothing if it met it. After the last one it is over."""
        row, violations = self.stage.row, self.stage.violations
        if met and row.state in WORKABLE and row.attempts > attempts and not self.stage.catalog.broken:
            violations.append(f"the outage cost an attempt: {row.waiting_for}")
        if made == OUTLASTS:
            self.stage.outage = None
            if row.state in WORKABLE and self.stage.plane.now - self._began < LEAST_SECONDS:
                violations.append(f"{made} attempts in {self.stage.plane.now - self._began:g} s of an outage")

    def _meanwhile(self, process: Process) -> Callable[[], object]:
        if self.redelivery is Redelivery.MEANWHILE and process.name != OTHER_WORKER:
            return lambda: self.stage.attempt(Process(OTHER_WORKER))
        return lambda: None

    def finish(self) -> list[str]:
        """Run to the end; what is wrong."""
        stage, process, outlasted = self.stage, Process(), 0
        for _ in range(80):
            before, attempts = len(self.struck), stage.row.attempts
            stage.attempt(process)
            if stage.outage is not None:
                outlasted += 1
                self._outlast(outlasted, attempts, met=process.met_outage)
            if process.dead:
                process = Process()
            if len(self.struck) > before:
                self._write()
                if self.redelivery is Redelivery.AGAIN:
                    stage.attempt(Process(OTHER_WORKER))
            if not stage.pass_time_until_due() and not self._retried():
                break
        else:
            stage.violations.append(f"never ends: {stage.row.waiting_for}")
        stage.outage = None
        stage.late_arrive()
        self._nothing_more()
        return [f"{self}: {what}" for what in dict.fromkeys(stage.violations + stage.end_violations() + self._parked())]

    def _retried(self) -> bool:
        """Whether an operator has ordered a retry."""
        self._retries += self.redelivery is Redelivery.RETRIED
        if self._retries == 2:
            self.stage.other_hands_leave()
        return 0 < self._retries <= 2 and self.stage.operator.retry(self.stage.dataset)

    def _write(self) -> None:
        if self.writing is Writing.WRITER:
            self.stage.writer_commits()
        elif self.writing is Writing.ENGINE:
            self.stage.engine_commits(OLD)

    def _nothing_more(self) -> None:
        """A message for what has ended changes nothing."""
        self.calls, self.faults = list(self.stage.calls), {}
        before = len(self.stage.plane.events), dict(self.stage.catalog.names)
        self.stage.attempt()
        if (len(self.stage.plane.events), dict(self.stage.catalog.names)) != before:
            self.stage.violations.append("a message after the end changed something")

    def _parked(self) -> list[str]:
        if self.stage.row.state is not State.PARKED:
            return []
        row = self.stage.row
        return [] if self.scene.may_park(self.stage, self.struck) else [f"parked {row.park_code}: {row.park_text}"]


def clean(scene: Scene, writing: Writing = Writing.NOBODY) -> list[PortCall]:
    """The calls of the scene when nothing fails."""
    run = Run(scene, writing=writing)
    assert run.finish() == []
    assert run.stage.row.state is scene.ends
    assert run.stage.longest_window <= scene.window
    return run.calls[: scene.calls]


def single_faults(scene: Scene) -> Iterator[Run]:
    """Every call and fault, each with so many kinds of redelivery and writing, in turn."""
    turn = itertools.cycle(COMBINED)
    for at, call in enumerate(clean(scene)):
        for fault in scene.faults_of(call):
            for redelivery, writing in itertools.islice(turn, PER_FAULT):
                yield Run(scene, {at: fault}, redelivery, writing)


def outages(scene: Scene) -> Iterator[Run]:
    """Every request to the catalog, each with so many outages that begin there, in turn."""
    turn = itertools.cycle(Outage)
    for at, call in enumerate(clean(scene)):
        if call.port == "catalog":
            for outage in itertools.islice(turn, PER_CALL):
                yield Run(scene, outage=(at, outage))


def second_faults(scene: Scene, writing: Writing) -> Iterator[Run]:
    """Every call and fault, and then every later call and fault of what became of it."""
    for at, call in enumerate(clean(scene)):
        for fault in scene.faults_of(call):
            first = Run(scene, {at: fault}, Redelivery.SWEEPER, writing)
            assert first.finish() == []
            for later, then in enumerate(first.calls[at + 1 :], at + 1):
                for another in scene.faults_of(then):
                    yield Run(scene, {at: fault, later: another}, Redelivery.SWEEPER, writing)


def nothing_is_wrong(runs: Iterator[Run]) -> None:
    """Run them all; the count and how they end is printed (``-rP`` shows it)."""
    ends: Counter[str] = Counter()
    for run in runs:
        assert run.finish() == []
        ends[run.stage.row.park_code or run.stage.row.state] += 1
    print(f"{ends.total()} runs: {dict(ends)}")  # noqa: T201 - the report of the nightly run
    assert ends.total() > 0


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_no_single_fault_breaks_an_invariant(scene: Scene) -> None:
    nothing_is_wrong(single_faults(scene))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_no_outage_costs_an_attempt(scene: Scene) -> None:
    """However long it lasts, whichever request meets it first."""
    nothing_is_wrong(outages(scene))


if NIGHTLY:

    @pytest.mark.parametrize("writing", Writing)
    @pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
    def test_no_pair_of_faults_breaks_an_invariant(scene: Scene, writing: Writing) -> None:
        nothing_is_wrong(second_faults(scene, writing))


def test_the_window_of_a_rename_is_two_requests_long_however_slow_they_are() -> None:
    """The rename, and the look at the new name; the attempt that renamed is the one that flips."""
    slow = SECONDS[Fault.SLOW]
    clean(Scene("rename, every request as slow as may be", Strategy.RENAME, request_seconds=slow, window=2 * slow))


def test_every_fault_strikes_somewhere_and_every_call_is_struck() -> None:
    calls = {str(call): call for scene in SCENES for call in clean(scene)}
    assert {fault for call in calls.values() for fault in faults_of(call)} == set(Fault)
    assert calls.keys() >= {
        f"{port}.{name}" for port, names in PORTS.items() for name in names if f"{port}.{name}" not in NOT_ASKED
    }
