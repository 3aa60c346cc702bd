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
from worker.controlplane.election import elected
from worker.controlplane.topup import DUE_CHANNEL, seconds_until_due, top_up
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

_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class Round:
    """What one round found: how much it sent, and in how many seconds the next row is due (None: none waits)."""

    sent: int = 0
    due_in: float | None = None
    lost: bool = False
    """Somebody else was publishing, who may have missed what this round was called for."""


def pause(interval: float, last: Round) -> float:
    """Seconds until the next round: the interval, or less where something is due or still flows."""
    wanted = [interval]
    if last.sent or last.lost:
        wanted.append(HURRY)
    if last.due_in is not None:
        wanted.append(last.due_in)
    return max(SHORTEST_PAUSE, min(wanted))


@dataclass
class Sweeper:
    """One worker's sweeper. It keeps two connections, and opens them again whenever they were lost."""

    settings: Settings
    worker: str
    queues: Sequence[Queue]
    concurrency: int
    doorbell: Doorbell
    _working: Connection | None = field(default=None, init=False)
    _listening: Connection | None = field(default=None, init=False)

    def round(self) -> Round:
        """One round; what is out of reach is logged and asked again in the next one."""
        try:
            working, listening = self._connections()
            note_alive(working, self.worker, self.queues, self.concurrency)
            with elected(listening) as won:
                sent = self._top_up(working) if won else 0
            return Round(sent, seconds_until_due(working), lost=not won)
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
            self._working = connect(self.settings.database(), role="sweeper")
            # LISTEN needs Postgres itself. Behind a pooler that is not known of, nothing is ever heard, and the
            # rounds go on by the clock.
            self._listening = connect(self.settings.direct_database(), role="sweeper")
            with translated():
                self._listening.execute(f"LISTEN {DUE_CHANNEL}")
        return self._working, self._listening

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
    """Rounds, until the other end of ``lifeline`` is gone."""
    last = sweeper.round()
    while sweeper.wait(pause(sweeper.settings.sweep_interval_seconds, last), lifeline):
        last = sweeper.round()


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep for one worker until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m worker.sweeper", description="Publishes what is due.")
    parser.add_argument("--worker", required=True, help="the worker's name, as it stands in reroot.workers")
    parser.add_argument("--queues", required=True, help="its queues, with commas between")
    parser.add_argument("--concurrency", type=int, default=1, help="its processes")
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
            sweeper = Sweeper(settings, given.worker, queues, given.concurrency, doorbell)
            try:
                run(sweeper, sys.stdin.fileno())
            finally:
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
