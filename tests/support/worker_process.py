"""A real worker: ``celery -A worker.app worker``, as an operator starts it.

Responsible for: its environment, waiting until it takes messages, its end.
Must not know: what it does.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from demo.processes import Process, ServiceError, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).parents[2]
READY_SECONDS: Final = 60

_numbers = itertools.count(1)


def plain_environment() -> dict[str, str]:
    """This process's environment without any setting of Reroot."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith("REROOT_")}  # noqa: TID251 - the environment of a process of our own


def worker_settings(database: str, broker: str, warehouse_folder: Path, **more: str) -> dict[str, str]:
    """Settings of a worker on these services, with an SQL catalog in the same database and quick rounds."""
    return {
        "REROOT_DATABASE_URL": database,
        "REROOT_BROKER_URL": broker,
        "REROOT_CATALOG_TYPE": "sql",
        "REROOT_CATALOG_URI": database.replace("postgresql://", "postgresql+psycopg://", 1),
        "REROOT_WAREHOUSE": "lake",
        "REROOT_WAREHOUSE_LOCATION": f"file://{warehouse_folder}",
        "REROOT_GRACE_SECONDS": "2",
        "REROOT_SWEEP_INTERVAL_SECONDS": "1",
        "REROOT_REPUBLISH_AFTER_SECONDS": "5",
        **more,
    }


class WorkerProcess:
    """One worker of ``concurrency`` processes. As a context it is stopped, in order, at the end."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str], *, app: str = "worker.app", queues: str = "moves",
        concurrency: int = 2,
    ) -> None:  # fmt: skip
        self.name = f"worker{next(_numbers)}@test"
        self.log = folder / f"{self.name}.log"
        self._settings = settings
        self._command = [
            sys.executable, "-m", "celery", "-A", app, "worker", "-Q", queues, "-c", str(concurrency),
            "-n", self.name, "--without-gossip", "--without-mingle",
        ]  # fmt: skip
        self._process: Process | None = None

    def start(self) -> Self:
        """Start it and wait until it takes messages. Raises ServiceError."""
        self._reap()
        seen = self.text().count(" ready.")
        process = Process(
            self._command, log=self.log, environment={**plain_environment(), **self._settings}, folder=ROOT,
        )  # fmt: skip
        self._process = process
        try:
            wait_until(
                lambda: self.text().count(" ready.") > seen or not process.alive(),
                seconds=READY_SECONDS, what="the worker takes messages",
            )  # fmt: skip
        finally:
            if self.text().count(" ready.") == seen:
                self._reap()
        if not self.alive():
            raise ServiceError(f"the worker ended while it started:\n{process.tail()}")
        return self

    @property
    def pid(self) -> int:
        """Its main process."""
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        """Whether its main process runs."""
        return self._process is not None and self._process.alive()

    def stop(self) -> int:
        """SIGTERM: what runs may end. Returns the exit code."""
        assert self._process is not None
        return self._process.stop(seconds=60)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to its main process."""
        assert self._process is not None
        self._process.send(number)

    def kill(self) -> None:
        """Kill -9 its main process alone, as the kernel would when memory is short; wait until it is gone."""
        self.send(signal.SIGKILL)
        wait_until(lambda: not self.alive(), seconds=10, what="the worker is gone")

    def text(self) -> str:
        """What it has logged so far."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def __enter__(self) -> Self:
        return self.start()

    def _reap(self) -> None:
        if self._process is not None:
            self._process.stop(seconds=60)
            self._process = None

    def __exit__(self, *_: object) -> None:
        self._reap()
