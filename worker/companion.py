"""The worker's companion: the sweeper's process, kept alive and ended by its worker.

Responsible for: starting it, starting it again when it has died, ending it.
Must not know: what it does (``worker.sweeper``), Celery.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from worker.telemetry import log

if TYPE_CHECKING:
    from collections.abc import Sequence

END_SECONDS: Final = 5.0
"""How long it may take to end in order."""


@dataclass
class Companion:
    """The sweeper of one worker. Its standard input is held open for as long as the worker lives."""

    worker: str
    queues: Sequence[str]
    concurrency: int
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _leaving: bool = field(default=False, init=False)

    def keep(self) -> None:
        """Start it unless it runs. Called again and again while the worker lives."""
        if self._leaving or (self._process is not None and self._process.poll() is None):
            return
        if self._process is not None:
            late = self._process.returncode == -signal.SIGALRM
            why = "its round took too long: Postgres or the broker stands still" if late else "see its own lines"
            log.warning("the sweeper ended, starting another", code=self._process.returncode, why=why)
        arguments = ["--worker", self.worker, "--queues", ",".join(self.queues), "--concurrency", str(self.concurrency)]
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter and our own module, no shell
            [sys.executable, "-m", "worker.sweeper", *arguments],
            stdin=subprocess.PIPE,
        )

    def leave(self) -> None:
        """Tell it to end, and do not wait: for a signal handler."""
        if self._leaving:
            return
        self._leaving = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.terminate()  # children that were forked meanwhile hold copies of its input

    def end(self) -> None:
        """Tell it to end and wait until it has."""
        self.leave()
        if self._process is None:
            return
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
