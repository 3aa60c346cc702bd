"""Carrying out the plan: one hand for processes, one for the catalog, each doing one thing after the other.

Responsible for: what each disaster does, that whatever it ended runs again, and how many took place.
Must not know: what comes of it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import psycopg

from tests.chaos.faults import RULES
from tests.chaos.plan import OUTAGES, Disaster
from tests.support.processes import Known, descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.chaos.orchestrator import Orchestrator
    from tests.chaos.plan import Strike
    from tests.chaos.stage import Stage
    from tests.support.worker_process import WorkerProcess

_UNTIL_BUSY: Final = 2.0
"""Seconds for which a killer waits until its victim is at work."""
_UNTIL_ASKED: Final = 20.0
"""Seconds for which a liar waits until somebody asks again: a catalog that was away is left alone for a while."""
_UNTIL_HEARD: Final = 5.0
"""Seconds for which a lie goes on beyond its time until somebody has heard it."""
_BUSY: Final = "SELECT count(*) > 0 FROM reroot.moves WHERE attempt_started_at IS NOT NULL AND worker = %s"
_LEFT_ALONE: Final = "SELECT count(*) > 0 FROM reroot.warehouses WHERE down_until > now()"


@dataclass
class Striking:
    """The strikes on one stage. ``run`` may be called from several threads, with strikes that do not meet."""

    stage: Stage
    orchestrator: Orchestrator
    struck: Counter[Disaster] = field(default_factory=Counter)
    """How many disasters took place."""
    processes_killed: int = 0
    lives: set[Known] = field(default_factory=set)
    """Every process that a worker had at the time of a strike: none may outlive its worker for long."""
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def run(self, strikes: Sequence[Strike], begun: float, seconds: float) -> None:
        """Carry out the strikes, each at its time or as soon as the one before is over; none begins after the end."""
        for strike in strikes:
            _sleep_until(begun + strike.at)
            if time.monotonic() > begun + seconds:
                return
            _DO[strike.disaster](self, strike)
            with self._mutex:
                self.struck[strike.disaster] += 1

    def _some_worker(self, strike: Strike) -> WorkerProcess:
        return random.Random(strike.chance).choice(self.stage.workers)  # noqa: S311 - chance that a seed repeats

    def _note_lives(self, worker: WorkerProcess) -> set[Known]:
        found = descendants(worker.pid)
        self.lives |= found
        return found

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.processes_killed += 1

    def children_killed(self, strike: Strike) -> None:
        worker = self._some_worker(strike)
        self._wait_until_busy(worker)
        chance = random.Random(strike.chance)  # noqa: S311 - chance that a seed repeats
        with self.orchestrator.held_off():
            lives = self._note_lives(worker)
            pool = sorted(one.pid for one in lives if "worker.sweeper" not in one.command)
            for victim in chance.sample(pool, min(len(pool), chance.randint(1, 4))):
                self._kill(victim)
        time.sleep(strike.seconds)

    def worker_killed(self, strike: Strike) -> None:
        worker = self._some_worker(strike)
        self._wait_until_busy(worker)
        with self.orchestrator.held_off():
            self._note_lives(worker)
            worker.kill()
            self.processes_killed += 1
            time.sleep(strike.seconds)
            worker.start()

    def all_workers_killed(self, strike: Strike) -> None:
        with self.orchestrator.held_off():
            for worker in self.stage.workers:
                # With their processes: nobody is left to end what was begun.
                for victim in self._note_lives(worker):
                    self._kill(victim.pid)
                worker.kill()
                self.processes_killed += 1
            time.sleep(strike.seconds)
            for worker in self.stage.workers:
                worker.start()

    def worker_stopped(self, strike: Strike) -> None:
        worker = self._some_worker(strike)
        with self.orchestrator.held_off():
            self._note_lives(worker)
            worker.stop()
            time.sleep(strike.seconds)
            worker.start()

    def sweeper_killed(self, strike: Strike) -> None:
        with self.orchestrator.held_off():
            for one in self._note_lives(self._some_worker(strike)):
                if "worker.sweeper" in one.command:
                    self._kill(one.pid)

    def broker_killed(self, strike: Strike) -> None:
        self.stage.broker.kill(lose_file=strike.disaster is Disaster.BROKER_EMPTIED)
        time.sleep(strike.seconds)
        self.stage.broker.start()

    def postgres_restarted(self, _: Strike) -> None:
        self.stage.postgres.restart(immediate=True)

    def postgres_frozen(self, strike: Strike) -> None:
        """Nothing is closed: whoever waits for an answer hears nothing at all."""
        postmaster = self.stage.postgres.pid
        frozen = [postmaster, *(one.pid for one in descendants(postmaster))]
        _signal(frozen, signal.SIGSTOP)
        try:
            time.sleep(strike.seconds)
        finally:
            _signal(frozen, signal.SIGCONT)

    def unreachable(self, strike: Strike) -> None:
        self.stage.proxy.stop()
        time.sleep(strike.seconds)
        self.stage.proxy.start()

    def frozen(self, strike: Strike) -> None:
        self.stage.proxy.freeze()
        time.sleep(strike.seconds)
        self.stage.proxy.thaw()

    def misbehave(self, strike: Strike) -> None:
        if strike.disaster not in OUTAGES:
            self._wait(lambda: not self._asked(_LEFT_ALONE), _UNTIL_ASKED)
        proxy = self.stage.proxy
        before = proxy.faults()
        numbers = proxy.begin(RULES[strike.disaster])
        time.sleep(strike.seconds)
        self._wait(lambda: proxy.faults() != before, _UNTIL_HEARD)
        proxy.end(numbers)

    def _wait_until_busy(self, worker: WorkerProcess) -> None:
        self._wait(lambda: self._asked(_BUSY, worker.name), _UNTIL_BUSY)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.05)

    def _asked(self, question: str, *about: str) -> bool:
        """The control plane's answer; no while it is away."""
        try:
            with psycopg.connect(self.stage.database, connect_timeout=5) as connection:
                row = connection.execute(question.encode(), about).fetchone()
        except psycopg.Error:
            return False
        return bool(row and row[0])


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


_DO: Final[Mapping[Disaster, Callable[[Striking, Strike], None]]] = {
    **dict.fromkeys(RULES, Striking.misbehave),
    Disaster.UNREACHABLE: Striking.unreachable,
    Disaster.FROZEN: Striking.frozen,
    Disaster.CHILDREN_KILLED: Striking.children_killed,
    Disaster.WORKER_KILLED: Striking.worker_killed,
    Disaster.ALL_WORKERS_KILLED: Striking.all_workers_killed,
    Disaster.WORKER_STOPPED: Striking.worker_stopped,
    Disaster.SWEEPER_KILLED: Striking.sweeper_killed,
    Disaster.BROKER_KILLED: Striking.broker_killed,
    Disaster.BROKER_EMPTIED: Striking.broker_killed,
    Disaster.POSTGRES_RESTARTED: Striking.postgres_restarted,
    Disaster.POSTGRES_FROZEN: Striking.postgres_frozen,
}
