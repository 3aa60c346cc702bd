"""The sweeper: one small process beside every worker, ``python -m worker.sweeper``.

Responsible for: rounds. In each it notes its worker as alive and, where it wins the election, tops up the worker's
queues from the ledger. A lost message, a flushed broker, a killed attempt, a grace that has ended: all are found here.
Must not know: what a job does, catalogs.

It is a process and not a thread because a prefork parent forks all day. It must not outlive its worker: it ends when
its standard input does, and where the kernel offers it, when its parent dies.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import select
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from worker.app import CeleryDoorbell
from worker.controlplane.connection import Connection, ControlPlaneError, connect, translated
from worker.controlplane.election import SWEEP, elected
from worker.controlplane.topup import DUE_CHANNEL, Work, top_up, work
from worker.controlplane.workers import note_alive, note_gone
from worker.doorbell import BrokerAwayError, Doorbell
from worker.messages import Queue
from worker.settings import Settings, SettingsError, load_settings
from worker.telemetry import bind, configure, log

if TYPE_CHECKING:
    from collections.abc import Sequence

SHORTEST_PAUSE: Final = 1.0
"""Seconds between two rounds at least, whatever calls."""

HURRY: Final = 2.0
"""Seconds until the next round after one that sent something: a window that was filled drains meanwhile."""

WORKING: Final = 5.0
"""Seconds until the next round while there is work: an attempt may have opened a rename and died since."""

LONGEST_ROUND: Final = 30.0
"""Seconds after which a round is ended by the end of this process: some server stands still, and the worker starts
another sweeper."""

STATEMENT: Final = 20.0
"""Seconds for one statement, which is a part of a round."""

LEAVING: Final = 4
"""Seconds that ``Sweeper.leave`` may take."""

_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class Round:
    """What one round found: how much it sent, and what there is to do."""

    sent: int = 0
    work: Work = field(default_factory=Work)
    lost: bool = False
    """Somebody else was publishing, who may have missed what this round was called for."""


def pause(interval: float, last: Round) -> float:
    """Seconds until the next round: the interval, or less where there is work, or something is due or still flows."""
    wanted = [interval]
    if last.sent or last.lost:
        wanted.append(HURRY)
    if last.work.now:
        wanted.append(WORKING)
    if last.work.due_in is not None:
        wanted.append(last.work.due_in)
    return max(SHORTEST_PAUSE, min(wanted))


@dataclass
class Sweeper:
    """One worker's sweeper. It keeps two connections, and opens them again whenever they were lost."""

    settings: Settings
    worker: str
    queues: Sequence[Queue]
    concurrency: int
    doorbell: Doorbell
    longest_round: float = LONGEST_ROUND
    _lost_since: float | None = field(default=None, init=False)
    """When it began to lose the election, round after round."""
    _working: Connection | None = field(default=None, init=False)
    _listening: Connection | None = field(default=None, init=False)

    def round(self) -> Round:
        """One round; what is out of reach is logged and asked again in the next one."""
        try:
            working, listening = self._connections()
            note_alive(working, self.worker, self.queues, self.concurrency)
            with elected(listening, stand_in=self._winner_is_stuck()) as won:
                sent = self._top_up(working) if won else 0
            self._lost_since = None if won == SWEEP else self._lost_since or time.monotonic()
            return Round(sent, work(working), lost=won is None)
        except ControlPlaneError as error:
            log.warning("the control plane failed the round", reason=str(error))
            self.close()
            return Round()

    def wait(self, seconds: float, lifeline: int) -> bool:
        """Wait until the next round is due, sooner when called. False when the other end of ``lifeline`` is gone."""
        begun = time.monotonic()
        called = self._called()
        while (left := begun + (min(seconds, SHORTEST_PAUSE) if called else seconds) - time.monotonic()) > 0:
            ears = [] if self._listening is None or called else [self._listening.fileno()]
            ready, _, _ = select.select([lifeline, *ears], [], [], left)
            if lifeline in ready and not os.read(lifeline, 1024):
                return False
            called = called or self._called()
        return True

    def close(self) -> None:
        """Let both connections go."""
        for connection in (self._working, self._listening):
            if connection is not None:
                connection.close()
        self._working = self._listening = None

    def leave(self) -> None:
        """Note that the worker has ended, if that can be noted, and close."""
        try:
            if self._working is not None:
                note_gone(self._working, self.worker)
        except ControlPlaneError as error:
            log.info("could not note that the worker ends", reason=str(error))
        self.close()

    def _connections(self) -> tuple[Connection, Connection]:
        if self._working is None or self._listening is None:
            self.close()
            self._working = connect(self.settings.database(), role="sweeper", statement_seconds=STATEMENT)
            # LISTEN needs Postgres itself. Behind a pooler that is not known of, nothing is ever heard, and the
            # rounds go on by the clock.
            self._listening = connect(self.settings.direct_database(), role="sweeper", statement_seconds=STATEMENT)
            with translated():
                self._listening.execute(f"LISTEN {DUE_CHANNEL}")
        return self._working, self._listening

    def _winner_is_stuck(self) -> bool:
        """Whether this one has lost for longer than any round may take."""
        return self._lost_since is not None and time.monotonic() - self._lost_since > self.longest_round

    def _top_up(self, working: Connection) -> int:
        sent = 0
        for queue in self.queues:
            try:
                count = top_up(
                    working,
                    queue,
                    self.doorbell,
                    window=self.settings.queue_window,
                    republish_after=self.settings.republish_after_seconds,
                    longest_attempt=self.settings.longest_attempt_seconds,
                )
            except BrokerAwayError as error:
                log.warning("the broker does not answer", reason=str(error))
                return sent
            if count:
                log.info("topped up", queue=queue.value, sent=count)
            sent += count
        return sent

    def _called(self) -> bool:
        """Whether a NOTIFY came, or the connection on which it would have come is gone."""
        if self._listening is None:
            return False
        try:
            with translated():
                return bool(list(self._listening.notifies(timeout=0)))
        except ControlPlaneError:
            self.close()
            return True


def run(sweeper: Sweeper, lifeline: int) -> None:
    """Rounds, until the other end of ``lifeline`` is gone.

    A round that takes too long ends the process, by the kernel: a server that stands still but acknowledges what it is
    sent is waited for in vain, wherever in the libraries.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    lasts = True
    while lasts:
        signal.setitimer(signal.ITIMER_REAL, sweeper.longest_round)
        last = sweeper.round()
        signal.setitimer(signal.ITIMER_REAL, 0)
        lasts = sweeper.wait(pause(sweeper.settings.sweep_interval_seconds, last), lifeline)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep for one worker until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m worker.sweeper", description="Publishes what is due.")
    parser.add_argument("--worker", required=True, help="the worker's name, as it stands in reroot.workers")
    parser.add_argument("--queues", required=True, help="its queues, with commas between")
    parser.add_argument("--concurrency", type=int, default=1, help="its processes")
    parser.add_argument("--longest-round", type=float, default=LONGEST_ROUND, help="seconds for one round at most")
    given = parser.parse_args(arguments)
    _die_with_parent()
    # Ctrl-C reaches the whole process group; the worker decides when it is over.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    try:
        settings = load_settings()
        configure(settings)
        bind(worker=given.worker)
        queues = [Queue(name) for name in given.queues.split(",") if name in set(Queue)]
        with CeleryDoorbell(settings.broker()) as doorbell:
            sweeper = Sweeper(settings, given.worker, queues, given.concurrency, doorbell, given.longest_round)
            try:
                run(sweeper, sys.stdin.fileno())
            finally:
                signal.alarm(LEAVING)
                sweeper.leave()
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _end(*_: object) -> None:
    """End in order, once: the way out is not interrupted again."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def _die_with_parent() -> None:
    """Ask the kernel, where it is one that can, to end this process with its parent: also after a kill -9."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
