"""The fault proxy in a process of its own, which can be told to misbehave, be frozen, and be gone.

Responsible for: its life on one port, and what all of its lives have done together.
Must not know: which faults a disaster is made of.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

from urllib3.exceptions import HTTPError

from demo.processes import Process, wait_until
from demo.services import free_port
from tests.support.fault_proxy import RemoteFaults
from tests.support.worker_process import ROOT, plain_environment

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from tests.support.fault_proxy import Rule

_START_SECONDS: Final = 60


class ProxyProcess:
    """``with ProxyProcess(folder, server_uri, seed) as proxy``; ``proxy.uri`` stays the same through all its lives."""

    def __init__(self, folder: Path, upstream: str, seed: int) -> None:
        self._log = folder / "proxy.log"
        self._upstream = upstream
        self._seed = seed
        self._port = free_port()
        self._process: Process | None = None
        self._faults = RemoteFaults(self.uri)
        self._done: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Start it, behaving, and wait until it answers."""
        command = [sys.executable, "-m", "tests.support.fault_proxy", self._upstream]
        command += ["--port", str(self._port), "--seed", str(self._seed)]
        self._process = Process(command, log=self._log, environment=plain_environment(), folder=ROOT)
        wait_until(self._answers, seconds=_START_SECONDS, what="the fault proxy answers")
        return self

    def stop(self) -> None:
        """End it: connections are refused from now on, and those that were open are cut."""
        if self._process is not None:
            self._remember()
            self._process.stop(seconds=2)
            self._process = None

    def freeze(self) -> None:
        """From now on it takes connections and does nothing."""
        assert self._process is not None
        self._process.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on; nothing happens to one that is not frozen."""
        if self._process is not None:
            self._process.send(signal.SIGCONT)

    def begin(self, rules: list[Rule]) -> list[int]:
        """Misbehave; the numbers by which it ends."""
        return [self._faults.add(rule) for rule in rules]

    def end(self, numbers: list[int]) -> None:
        """Behave again in these respects."""
        for number in numbers:
            self._faults.remove(number)

    def behave(self) -> None:
        """Behave in every respect."""
        self._faults.clear()

    def faults(self) -> dict[str, int]:
        """What was done to requests so far, by "kind: fault"."""
        return dict(sorted((self._done + Counter(self._faults.counts())).items()))

    def requests(self) -> dict[str, int]:
        """How many requests of each kind arrived so far."""
        return dict(sorted((self._requests + Counter(self._faults.requests())).items()))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.thaw()
        if self._process is not None:
            self._process.stop(seconds=2)
            self._process = None

    def _remember(self) -> None:
        self._done += Counter(self._faults.counts())
        self._requests += Counter(self._faults.requests())

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.alive(), self._process.tail()
        try:
            self._faults.counts()
        except HTTPError:
            return False
        return True
