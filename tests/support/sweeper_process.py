"""A real sweeper, ``python -m worker.sweeper``, held by its lifeline as a worker holds it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Self

from tests.support.worker_process import ROOT, plain_environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class SweeperProcess:
    """One sweeper for a worker that is only a name."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str], worker: str = "nobody@test", *, longest_round: int = 30
    ) -> None:
        self.log = folder / "sweeper.log"
        with self.log.open("ab") as sink:
            more = ["--concurrency", "3", "--longest-round", str(longest_round)]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "worker.sweeper", "--worker", worker, "--queues", "moves", *more],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=plain_environment() | dict(settings),
                cwd=ROOT,
            )

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def text(self) -> str:
        """What it has logged so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait(self) -> int:
        """Wait until it ends by itself. Returns the exit code."""
        return self._process.wait(60)

    def let_go(self) -> int:
        """Close its lifeline, as the end of a worker does, and wait for its end. Returns the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive():
            self._process.kill()
        self._process.wait(30)
        if self._process.stdin is not None:
            self._process.stdin.close()
