"""Two workers, the sweeper, writers, engines, an operator and time, in any order, with every fault: what must hold.

A model that keeps account of every acknowledged commit watches the real protocol on the in-memory twins. Workers
advance one port call at a time, so that anything may happen between any two of them.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.catalog_double import CatalogDouble
from tests.support.faults import CHANGES, Fault, faults_of
from tests.support.nightly import NIGHTLY, QUICK
from tests.support.stepping import SteppedAttempt
from tests.support.twin_stage import DATASET, ELSEWHERE, NAME, NEW, OLD, Process, TwinStage
from worker.identifiers import TableIdentifier
from worker.moves.machine import State
from worker.moves.policy import Policy
from worker.moves.ports import Strategy
from worker.outcome import ParkCode

ASIA: Final = TableIdentifier.within(ELSEWHERE, NAME)
CATALOGS: Final[list[tuple[Strategy | None, bool, bool]]] = [
    (Strategy.REGISTER, True, False),
    (Strategy.REGISTER, False, False),
    (Strategy.RENAME, True, True),
    (Strategy.RENAME, True, False),
    (None, True, False),
    (None, False, False),
    (None, True, True),
]
"""The strategy that is given, whether the catalog offers rename, whether it holds a table only once."""
WORKERS: Final = st.sampled_from(["worker-1", "worker-2"])
LONGEST_REQUEST: Final = 60.0
"""Seconds for which a process may be at one request that changes something: its client gives up long before. The one
assumption about time: a process does not stand still between its last question and its request for longer."""
LATEST: Final = 4.0
"""Seconds after which a request that its client gave up is dead: the shortest pause before it is made again."""


class Moves(RuleBasedStateMachine):
    """The world around one dataset."""

    @initialize(
        where=st.sampled_from(CATALOGS),
        log_length=st.sampled_from([100, 1]),
        cleaning=st.booleans(),
    )
    def begin(self, where: tuple[Strategy | None, bool, bool], log_length: int, cleaning: bool) -> None:
        strategy, offers_rename, once = where
        catalog = CatalogDouble(offers_rename=offers_rename, once=once, log_length=log_length)
        self.stage = TwinStage(Policy(strategy=strategy), catalog, cleaning=cleaning)
        self.processes = {name: Process(name) for name in ("worker-1", "worker-2")}
        self.attempts: dict[str, SteppedAttempt] = {}
        self.writer: object | None = None

    # Workers.

    @rule(who=WORKERS)
    def a_message_arrives(self, who: str) -> None:
        """At any time, any number."""
        if who not in self.attempts:
            if self.processes[who].dead:
                self.processes[who] = Process(who)
            self._keep(who, SteppedAttempt(self.stage, self.processes[who]))

    @rule(who=WORKERS)
    def the_sweeper_sends(self, who: str) -> None:
        if self.stage.plane.publish(DATASET):
            self.a_message_arrives(who)

    @rule(who=WORKERS, calls=st.integers(1, 12))
    def it_goes_on(self, who: str, calls: int) -> None:
        for _ in range(calls):
            if who in self.attempts:
                self._step(who, None)

    @rule(who=WORKERS)
    def it_runs_to_its_end(self, who: str) -> None:
        self.it_goes_on(who, 300)
        assert who not in self.attempts

    @rule(who=WORKERS, calls=st.integers(0, 8), which=st.integers(0, 99))
    def a_fault_strikes(self, who: str, calls: int, which: int) -> None:
        self.it_goes_on(who, calls)
        pending = self.attempts[who].pending if who in self.attempts else None
        if pending is not None and faults_of(pending):
            faults = faults_of(pending)
            self._step(who, faults[which % len(faults)])

    @rule(who=WORKERS)
    def its_node_is_lost(self, who: str) -> None:
        """Nobody closes the lock's connection: it stays until the server's patience ends."""
        if who in self.attempts:
            lock = self.attempts[who].process.lock
            if lock is not None:
                lock.node_lost = True
            self._step(who, Fault.CRASH_BEFORE)

    def _step(self, who: str, fault: Fault | None) -> None:
        attempt = self.attempts.pop(who)
        attempt.step(fault)
        self._keep(who, attempt)

    def _keep(self, who: str, attempt: SteppedAttempt) -> None:
        if attempt.pending is not None:
            self.attempts[who] = attempt

    # Everybody else.

    @rule(seconds=st.sampled_from([1, 6, 16, 91, 301, 901]))
    def time_passes(self, seconds: float) -> None:
        for attempt in self.attempts.values():
            if attempt.pending is not None and attempt.pending.method in CHANGES:
                left = attempt.process.guarded_at + LONGEST_REQUEST - self.stage.plane.now
                seconds = min(seconds, max(left, 0))
        self.stage.late_arrive(sent_before=self.stage.plane.now + seconds - LATEST)
        self.stage.plane.pass_time(seconds)

    @rule()
    def a_writer_takes_the_lock(self) -> None:
        if self.writer is None and DATASET not in self.stage.plane.locks:
            self.writer = self.stage.plane.locks[DATASET] = object()

    @rule(commits=st.booleans())
    def a_writer_commits_and_leaves(self, commits: bool) -> None:
        if self.writer is not None:
            self.stage.plane.release(self.writer)
            self.writer = None
            if commits:
                self.stage.writer_commits()

    @rule(name=st.sampled_from([OLD, NEW, ASIA]), who=WORKERS, calls=st.integers(0, 9))
    def an_engine_commits(self, name: TableIdentifier, who: str, calls: int) -> None:
        """Through any name that stands, after a few more calls of a worker."""
        self.it_goes_on(who, calls)
        self.stage.engine_commits(name)

    @rule(who=WORKERS, calls=st.integers(0, 9))
    def late_requests_arrive(self, who: str, calls: int) -> None:
        self.it_goes_on(who, calls)
        self.stage.late_arrive()

    @rule(schema=st.sampled_from(["s", "s", "t", "t", None]))
    def the_dataset_gets_another_schema(self, schema: str | None) -> None:
        self.stage.plane.datasets[DATASET].schema_id = schema

    @rule(name=st.sampled_from([OLD, NEW, ASIA]), who=WORKERS, calls=st.integers(0, 9))
    def another_hand_takes_a_name(self, name: TableIdentifier, who: str, calls: int) -> None:
        """A table that is nobody's business here, under a free name that readers are not sent to."""
        self.it_goes_on(who, calls)
        if name != self.stage.live:
            self.stage.another_hand_creates(name)

    @rule()
    def other_hands_leave(self) -> None:
        self.stage.other_hands_leave()

    # The operator.

    @rule()
    def retry(self) -> None:
        self.stage.operator.retry(DATASET)

    @rule()
    def revert(self) -> None:
        self.stage.operator.revert(DATASET)

    @precondition(lambda self: self.stage.row.park_code == ParkCode.DIVERGED)
    @rule(keep_new=st.booleans())
    def resolve(self, keep_new: bool) -> None:
        self.stage.resolve(keep_new=keep_new)

    # What must hold.

    @invariant()
    def nothing_is_violated(self) -> None:
        if hasattr(self, "stage"):
            self.stage.look()
            assert self.stage.violations == []

    def teardown(self) -> None:
        """Everybody leaves, every process dies where it is, and the sweeper alone brings it to an end."""
        if not hasattr(self, "stage"):
            return
        for attempt in self.attempts.values():
            attempt.kill()
        if self.writer is not None:
            self.stage.plane.release(self.writer)
        self.stage.late_arrive()
        self.stage.settle()
        self.stage.look()
        wrong = self.stage.violations + self.stage.end_violations()
        assert wrong == [], wrong
        row = self.stage.row
        assert row.state is not State.PARKED or (row.park_text and row.park_remedy)


TestMoves = pytest.mark.timeout(43_200 if NIGHTLY else 600)(Moves.TestCase)
TestMoves.settings = settings(
    max_examples=100_000 if NIGHTLY else 100 if QUICK else 2_000,
    stateful_step_count=40,
    deadline=None,
    derandomize=not NIGHTLY,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
