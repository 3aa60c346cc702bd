"""A worker that notes where each attempt's time goes: ``celery -A benchmarks.timed_worker``.

Responsible for: the very same app and tasks, with a stopwatch around what a job waits for: each request by its kind,
the soak, each step of the ledger and the lock; and the gap between two jobs of one process.
Must not know: what is done with the figures. They go into one file per process, a line per attempt.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from worker.app import app
from worker.controlplane import ledger
from worker.controlplane.lock import PostgresLock
from worker.lakehouse import rest
from worker.lakehouse.rest_wire import Wire
from worker.moves.attempt import Mover

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["app"]

FOLDER: Final = "REROOT_TEST_TIMINGS"
"""The variable that says where the figures go; of the kind that is never a setting."""


class Stopwatch:
    """Milliseconds of one attempt, by what they were spent on."""

    def __init__(self) -> None:
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._ended = 0.0

    def around(self, call: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        """``call``, timed under the name that its arguments give."""

        @functools.wraps(call)
        def timed(*arguments: Any, **named: Any) -> Any:
            begun, worked = time.perf_counter(), time.process_time()
            try:
                return call(*arguments, **named)
            finally:
                label = name(*arguments)
                self._spent[label] += (time.perf_counter() - begun) * 1000
                self._spent[label + " cpu"] += (time.process_time() - worked) * 1000

        return timed

    def around_attempt(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The whole attempt; at its end the figures are written down."""
        timed = self.around(call, lambda *_: "attempt")

        @functools.wraps(call)
        def noted(mover: Mover, dataset_id: str) -> Any:
            gap = time.perf_counter() - self._ended if self._ended else 0.0
            outcome = timed(mover, dataset_id)
            line = {**self._spent, "gap": gap * 1000, "outcome": repr(outcome)}
            self._spent.clear()
            # The environment of a measuring run, not a setting of the program.
            folder = os.environ[FOLDER]  # noqa: TID251 - see the line above
            with Path(folder, str(os.getpid())).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            self._ended = time.perf_counter()
            return outcome

        return noted


_watch: Final = Stopwatch()


def _install() -> None:
    wire: Any = Wire
    wire.send = _watch.around(Wire.send, lambda _, request: f"http {request.call.value}")
    module: Any = rest
    module.soak = _watch.around(module.soak, lambda *_: "soak")
    adapter: Any = ledger.PostgresControlPlane
    for method in ("peek", "claim", "journal", "close", "live_namespace"):
        setattr(adapter, method, _watch.around(getattr(adapter, method), lambda *_, method=method: f"ledger {method}"))
    holding: Any = ledger
    holding.hold = _watch.around(holding.hold, lambda *_: "lock hold")
    lock: Any = PostgresLock
    for method in ("alive", "flip", "finish"):
        setattr(lock, method, _watch.around(getattr(lock, method), lambda *_, method=method: f"lock {method}"))
    mover: Any = Mover
    mover.attempt = _watch.around_attempt(Mover.attempt)


_install()
