"""One run: set the stage, let traffic and disasters loose on it while it moves, let it end, look.

Responsible for: the order of these and their bounds in time.
Must not know: what a disaster does, what is right at the end.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import psycopg
import redis

from demo.processes import ServiceError, wait_until
from tests.chaos.closing import look
from tests.chaos.files import digests
from tests.chaos.operating import operate
from tests.chaos.orchestrator import Orchestrator
from tests.chaos.plan import plan
from tests.chaos.stage import VISIBILITY_SECONDS, WAREHOUSE, Stage
from tests.chaos.striking import Striking
from tests.chaos.traffic import Bystander, Orders
from tests.chaos.verdict import Commit, Seen
from tests.support.other_programs import in_background
from tests.support.processes import still_running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.closing import Look
    from tests.chaos.plan import Disaster
    from tests.chaos.stage import Subject

QUIET_SECONDS: Final = 600
"""Until everything must have ended once the disasters are over: longer than the longest back-off, twice."""
_QUEUED_BY: Final = 0.8
"""Moves are ordered little by little until so much of the time is over, so that every disaster meets some."""
_SLICES: Final = 40
_WARM_UP: Final = 60
_UNENDED: Final = "SELECT count(*) FROM reroot.moves WHERE state NOT IN ('done', 'parked')"


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is asked for. ``strangers``: one dataset in so many is written to by an engine without the lock."""

    datasets: int
    seconds: float
    seed: int
    strategy: str
    readers: int = 2
    writers: int = 2
    strangers: int = 20


@dataclass(frozen=True, slots=True)
class Result:
    """What happened, and what was seen."""

    options: Options
    seen: Seen
    look: Look
    struck: dict[Disaster, int]
    faults: dict[str, int]
    requests: dict[str, int]
    processes_killed: int
    ended_by_themselves: int
    """Workers that ended without being told to, and were started again."""
    reading: Counter[str]
    writing: Counter[str]
    engines: Counter[str]
    orders: Counter[str]
    """What the operator ordered, where that had an effect."""
    seconds_to_end: float
    """From the end of the disasters until everything had ended."""


def run(options: Options, folder: Path, say: Callable[[str], None]) -> Result:
    """One run, in a folder that is there and empty. Raises ServiceError when the stage itself breaks down."""
    with Stage(folder, options.strategy, options.seed) as stage:
        subjects = stage.populate(options.datasets)
        before = digests(stage.warehouse)
        for worker in stage.workers:
            worker.start()
        say(f"{len(subjects)} datasets, {len(before)} files; disasters for {options.seconds:g} s")
        with Orchestrator(stage.workers) as orchestrator:
            scene = _Scene(options, stage, subjects, Striking(stage, orchestrator))
            with ExitStack() as traffic:
                readers, writers, engine = scene.traffic(traffic)
                scene.disasters()
                for bystander in (*writers, *engine):
                    bystander.end()
                say("the disasters are over")
                ended_after = scene.let_end()
                for reader in readers:
                    reader.end()
            messages = scene.messages_left()
        for worker in stage.workers:
            worker.stop()
        left = scene.processes_left()
        say("the closing look")
        found = look(stage.database, stage.catalog_database, subjects)
        return scene.result(found, before, readers, writers, engine, ended_after, messages, left)


class _Scene:
    """The steps of a run, on one stage."""

    def __init__(self, options: Options, stage: Stage, subjects: list[Subject], striking: Striking) -> None:
        self.options = options
        self.stage = stage
        self.subjects = subjects
        self.striking = striking
        self.complaints: list[str] = []
        self.orders: Counter[str] = Counter()

    def traffic(self, running: ExitStack) -> tuple[list[Bystander], list[Bystander], list[Bystander]]:
        """Readers, writers and the engine, once each of them has begun."""
        options = self.options
        strangers = self.subjects[:: options.strangers] if options.strangers else []
        readers = [self._bystander(f"reader{n}", "reading", self.subjects, 0.02) for n in range(options.readers)]
        writers = [self._bystander(f"writer{n}", "writing", self.subjects, 0.1) for n in range(options.writers)]
        engine = [self._bystander("engine", "writing", strangers, 0.2, locking=False)] if strangers else []
        for bystander in (*readers, *writers, *engine):
            running.enter_context(bystander)
        wait_until(lambda: _all_told(writers), seconds=_WARM_UP, what="every writer has committed")
        return readers, writers, engine

    def _bystander(
        self, name: str, module: str, subjects: list[Subject], pause: float, *, locking: bool = True
    ) -> Bystander:
        stage = self.stage
        orders = Orders(
            stage.database, stage.server.uri, WAREHOUSE, f"{self.options.seed} {name}", pause,
            {one.dataset_id: one.table_uuid for one in subjects}, str(stage.folder / f"{name}.jsonl"), locking,
        )  # fmt: skip
        return Bystander(stage.folder, name, f"tests.chaos.{module}", orders)

    def disasters(self) -> None:
        """Order the moves and strike, for as long as was asked for; at the end everything runs and behaves."""
        seconds, begun = self.options.seconds, time.monotonic()
        hands = [
            in_background(partial(self.striking.run, strikes, begun, seconds))
            for strikes in plan(self.options.seed, seconds)
        ]
        over = threading.Event()
        datasets = [subject.dataset_id for subject in self.subjects]
        operator = in_background(partial(operate, self.stage.database, self.options.seed, datasets, over))
        self._queue(begun, seconds * _QUEUED_BY)
        for hand in hands:
            hand.result(timeout=seconds + 300)
        over.set()
        self.orders = operator.result(timeout=300)
        self.stage.proxy.behave()
        # What the operator has cancelled is ordered again: every dataset ends.
        wait_until(partial(self.stage.queue, 0, len(self.subjects)), seconds=120, what="the moves are ordered")

    def _queue(self, begun: float, seconds: float) -> None:
        count = len(self.subjects)
        marks = [round(count * n / _SLICES) for n in range(_SLICES + 1)]
        for n, (first, last) in enumerate(itertools.pairwise(marks)):
            time.sleep(max(0.0, begun + seconds * n / _SLICES - time.monotonic()))
            if first < last:
                wait_until(partial(self.stage.queue, first, last), seconds=120, what="the moves are ordered")

    def let_end(self) -> float:
        """Wait until every move has ended; after how many seconds it had."""
        begun = time.monotonic()
        try:
            wait_until(lambda: self._count(_UNENDED) == 0, seconds=QUIET_SECONDS, what="every move has ended")
        except ServiceError as error:
            self.complaints.append(str(error))
        return time.monotonic() - begun

    def _count(self, question: str) -> int:
        time.sleep(0.2)
        with psycopg.connect(self.stage.database) as connection:
            row = connection.execute(question.encode()).fetchone()
        return int(row[0]) if row else -1

    def messages_left(self) -> int:
        """Messages in the broker once it has handed out again whatever a killed worker had taken."""
        client = redis.Redis.from_url(self.stage.broker.url)

        def left() -> int:
            time.sleep(0.2)
            return int(client.llen("moves")) + int(client.hlen("unacked"))

        try:
            wait_until(lambda: left() == 0, seconds=VISIBILITY_SECONDS * 2 + 30, what="no message is left")
        except ServiceError:
            return left()
        finally:
            client.close()
        return 0

    def processes_left(self) -> list[str]:
        """Processes of workers that run although every worker has ended."""
        lives = self.striking.lives
        try:
            wait_until(lambda: not still_running(lives), seconds=30, what="every process has ended")
        except ServiceError:
            return sorted(f"{one.pid} {one.command}" for one in still_running(lives))
        return []

    def result(
        self, found: Look, before: dict[str, str], readers: list[Bystander], writers: list[Bystander],
        engine: list[Bystander], ended_after: float, messages: int, left: list[str],
    ) -> Result:  # fmt: skip
        """Everything together."""
        commits = [_commit(line) for one in (*writers, *engine) for line in one.told() if line["kind"] == "commit"]
        reading = _counts(readers)
        seen = Seen(
            strategy=self.options.strategy,
            ends=found.ends,
            commits=commits,
            files_before=before,
            files_after=digests(self.stage.warehouse),
            reads=reading["reads"],
            failed_reads=[line for reader in readers for line in reader.told() if line["kind"] == "failed"],
            messages_left=messages,
            advisory_locks=found.advisory_locks,
            processes_left=left,
            complaints=self.complaints,
        )
        return Result(
            options=self.options,
            seen=seen,
            look=found,
            struck=dict(self.striking.struck),
            faults=self.stage.proxy.faults(),
            requests=self.stage.proxy.requests(),
            processes_killed=self.striking.processes_killed,
            ended_by_themselves=self.striking.orchestrator.ended_by_themselves,
            reading=reading,
            writing=_counts(writers),
            engines=_counts(engine),
            orders=self.orders,
            seconds_to_end=ended_after,
        )


def _all_told(bystanders: list[Bystander]) -> bool:
    """Whether each has said something; raises ServiceError when one of them has ended."""
    for one in bystanders:
        one.check()
    return all(any(one.told()) for one in bystanders)


def _counts(bystanders: list[Bystander]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in bystanders:
        for line in one.told():
            if line["kind"] == "counts":
                total.update(line["counts"])
    return total


def _commit(line: dict[str, Any]) -> Commit:
    return Commit(line["dataset"], line["name"], line["snapshot"], line["files"])
