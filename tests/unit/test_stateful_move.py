"""Two datasets, two workers, and everybody else, in any order, with every fault: what must hold.

Everybody else is the sweeper, writers, engines, other hands that make tables, an operator, outages, and time.

A model that keeps account of every acknowledged commit watches the real protocol on the in-memory twins. Workers
advance one port call at a time, so that anything may happen between any two of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.catalog_double import CatalogDouble
from tests.support.faults import CHANGES, REQUEST_SECONDS, Fault, faults_of
from tests.support.nightly import NIGHTLY, QUICK
from tests.support.outages import Outage
from tests.support.stepping import SteppedAttempt
from tests.support.twin_stage import ELSEWHERE, NEW, OLD, Process, TwinStage
from worker.identifiers import TableIdentifier, quarantine_identifier
from worker.moves.machine import WORKABLE, State
from worker.moves.policy import Policy
from worker.moves.ports import Strategy
from worker.outcome import ParkCode

if TYPE_CHECKING:
    from collections.abc import Sequence

DATASETS: Final = st.integers(0, 1)
PLACES: Final = st.sampled_from([OLD.namespace, NEW.namespace, tuple(ELSEWHERE.split("."))])
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
    """The world around two datasets that share a warehouse."""

    @initialize(
        where=st.sampled_from(CATALOGS),
        log_length=st.sampled_from([100, 1]),
        cleaning=st.booleans(),
        alone=st.booleans(),
    )
    def begin(self, where: tuple[Strategy | None, bool, bool], log_length: int, cleaning: bool, alone: bool) -> None:
        strategy, offers_rename, once = where
        catalog = CatalogDouble(offers_rename=offers_rename, once=once, log_length=log_length)
        first = TwinStage(Policy(strategy=strategy), catalog, cleaning=cleaning)
        self.stages = [first]
        if not alone:
            self.stages.append(TwinStage(Policy(strategy=strategy), catalog, first.plane, "e", cleaning=cleaning))
        for stage in self.stages:
            stage.neighbours = [each for each in self.stages if each is not stage]
        self.plane = first.plane
        self.processes = {name: Process(name) for name in ("worker-1", "worker-2")}
        self.attempts: dict[str, SteppedAttempt] = {}
        self.writers: dict[str, object] = {}
        self.waiting: list[TwinStage] = []

    def _stage(self, which: int) -> TwinStage:
        return self.stages[which % len(self.stages)]

    # Workers.

    @rule(who=WORKERS, which=DATASETS)
    def a_message_arrives(self, who: str, which: int) -> None:
        """At any time, any number."""
        if who not in self.attempts:
            if self.processes[who].dead:
                self.processes[who] = Process(who)
            self._keep(who, SteppedAttempt(self._stage(which), self.processes[who]))

    @rule(who=WORKERS, which=DATASETS)
    def the_sweeper_sends(self, who: str, which: int) -> None:
        if self._published(which):
            self.a_message_arrives(who, which)

    @rule(which=DATASETS)
    def the_sweeper_sends_and_the_broker_loses_it(self, which: int) -> None:
        self._published(which)

    def _published(self, which: int) -> bool:
        return self.plane.publish(self._stage(which).dataset)

    @rule(who=WORKERS, which=DATASETS, calls=st.integers(1, 20))
    def it_works(self, who: str, which: int, calls: int) -> None:
        """It goes on with what it is at, or with the message of a dataset once that is due."""
        if who not in self.attempts:
            self.time_passes(max(0.0, self._stage(which).row.not_before - self.plane.now))
            self.a_message_arrives(who, which)
        self._go_on(who, calls)

    @rule(who=WORKERS, which=DATASETS)
    def it_runs_to_its_end(self, who: str, which: int) -> None:
        self.it_works(who, which, 300)
        assert who not in self.attempts

    @rule(who=WORKERS, which=DATASETS, calls=st.integers(0, 12), fault=st.integers(0, 99))
    def a_fault_strikes(self, who: str, which: int, calls: int, fault: int) -> None:
        self.it_works(who, which, calls)
        pending = self.attempts[who].pending if who in self.attempts else None
        if pending is not None and faults_of(pending):
            faults = faults_of(pending)
            self._step(who, faults[fault % len(faults)])

    def _go_on(self, who: str, calls: int) -> None:
        for _ in range(calls):
            if who in self.attempts:
                self._step(who, None)

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
        for stage in self.waiting:
            stage.another_hand_creates(stage.old)
        self._keep(who, attempt)

    def _keep(self, who: str, attempt: SteppedAttempt) -> None:
        if attempt.pending is not None:
            self.attempts[who] = attempt

    # Everybody else.

    @rule(seconds=st.sampled_from([1, 6, 16, 91, 301, 901]))
    def time_passes(self, seconds: float) -> None:
        for attempt in self.attempts.values():
            if attempt.pending is not None and attempt.pending.method in CHANGES:
                left = attempt.process.guarded_at + LONGEST_REQUEST - self.plane.now
                seconds = min(seconds, max(left, 0))
        for stage in self.stages:
            stage.late_arrive(sent_before=self.plane.now + seconds - LATEST)
        self.plane.pass_time(seconds)

    @rule(seconds=st.sampled_from([0.0, 4.0, REQUEST_SECONDS - 1]))
    def requests_take_so_long(self, seconds: float) -> None:
        for stage in self.stages:
            stage.request_seconds = seconds

    @rule(outage=st.sampled_from([None] * 9 + list(Outage)))
    def an_outage_begins_or_all_is_well_again(self, outage: Outage | None) -> None:
        for stage in self.stages:
            stage.outage = outage

    @rule(which=DATASETS)
    def a_writer_takes_the_lock(self, which: int) -> None:
        dataset = self._stage(which).dataset
        if dataset not in self.writers and dataset not in self.plane.locks:
            self.writers[dataset] = self.plane.locks[dataset] = object()

    @rule(which=DATASETS, commits=st.booleans())
    def a_writer_commits_and_leaves(self, which: int, commits: bool) -> None:
        writer = self.writers.pop(self._stage(which).dataset, None)
        if writer is not None:
            self.plane.release(writer)
            if commits:
                self._stage(which).writer_commits()

    @rule(which=DATASETS, where=PLACES, who=WORKERS, calls=st.integers(0, 9))
    def an_engine_commits(self, which: int, where: tuple[str, ...], who: str, calls: int) -> None:
        """Through any name that stands, after a few more calls of a worker."""
        self.it_works(who, which, calls)
        self._stage(which).engine_commits(TableIdentifier(where, self._stage(which).name))

    @rule(which=DATASETS, where=PLACES, who=WORKERS, calls=st.integers(0, 9))
    def another_hand_creates(self, which: int, where: tuple[str, ...], who: str, calls: int) -> None:
        """Under a name that we want, after a few more calls of a worker."""
        self.it_works(who, which, calls)
        self._stage(which).another_hand_creates(TableIdentifier(where, self._stage(which).name))

    @rule(which=DATASETS)
    def another_hand_waits_for_the_old_name(self, which: int) -> None:
        """It creates its table there at the very moment in which the name is free."""
        self.waiting.append(self._stage(which))

    @rule(which=DATASETS, ahead=st.integers(0, 2))
    def another_hand_creates_in_quarantine(self, which: int, ahead: int) -> None:
        """Under the name of the last withdrawal, or of one of the next."""
        name = quarantine_identifier(self._stage(which).name, len(self.plane.pointers) + ahead)
        self._stage(which).another_hand_creates(name)

    @rule()
    def other_hands_leave(self) -> None:
        self.waiting.clear()
        for stage in self.stages:
            stage.other_hands_leave()

    @rule(who=WORKERS, calls=st.integers(0, 9))
    def late_requests_arrive(self, who: str, calls: int) -> None:
        self._go_on(who, calls)
        for stage in self.stages:
            stage.late_arrive()

    @rule(which=DATASETS, schema=st.sampled_from(["s", "s", "t", "t", None]))
    def the_dataset_gets_another_schema(self, which: int, schema: str | None) -> None:
        self.plane.datasets[self._stage(which).dataset].schema_id = schema

    # The operator.

    @rule(who=WORKERS, which=DATASETS)
    def retry(self, who: str, which: int) -> None:
        """At once, and so often that something comes of it."""
        if self._stage(which).operator.retry(self._stage(which).dataset):
            self.it_works(who, which, 300)

    @rule(which=DATASETS)
    def revert(self, which: int) -> None:
        self._stage(which).operator.revert(self._stage(which).dataset)

    @rule(which=DATASETS, keep_new=st.booleans())
    def resolve(self, which: int, keep_new: bool) -> None:
        if self._stage(which).row.park_code == ParkCode.DIVERGED:
            self._stage(which).resolve(keep_new=keep_new)

    # What must hold.

    @invariant()
    def nothing_is_violated(self) -> None:
        for stage in getattr(self, "stages", ()):
            stage.look()
            assert stage.violations == []

    def teardown(self) -> None:
        """Everybody leaves, every process dies where it is, all is well, and the sweeper alone brings it to an end."""
        if not hasattr(self, "stages"):
            return
        self.an_outage_begins_or_all_is_well_again(None)
        self.requests_take_so_long(0.0)
        for attempt in self.attempts.values():
            attempt.kill()
        for writer in self.writers.values():
            self.plane.release(writer)
        for stage in self.stages:
            stage.late_arrive()
        settle(self.stages)
        for stage in self.stages:
            stage.look()
            wrong = stage.violations + stage.end_violations()
            assert wrong == [], wrong
            row = stage.row
            assert row.state is not State.PARKED or (row.park_text and row.park_remedy)


def settle(stages: Sequence[TwinStage]) -> None:
    """Let the sweeper run until nothing is left to do for any of them."""
    for _ in range(40 * len(stages)):
        due = [stage for stage in stages if stage.plane.to_publish(stage.dataset)]
        if due:
            due[0].attempt()
        elif any(stage.row.state in WORKABLE for stage in stages):
            stages[0].plane.pass_time(100.0)
        else:
            return


TestMoves = pytest.mark.timeout(43_200 if NIGHTLY else 600)(Moves.TestCase)
TestMoves.settings = settings(
    max_examples=100_000 if NIGHTLY else 100 if QUICK else 1_000,
    stateful_step_count=40,
    deadline=None,
    derandomize=not NIGHTLY,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
