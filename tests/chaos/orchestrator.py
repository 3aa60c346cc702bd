"""What keeps workers running in production: one that has ended by itself is started again.

Responsible for: that, and how often it was needed. Celery itself gives up on some losses of its broker.
Must not know: who else ends workers; they hold it off meanwhile.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.worker_process import WorkerProcess

_ROUND: Final = 1.0


class Orchestrator:
    """``with Orchestrator(workers)``: from then on they run; ``held_off`` for whoever ends one on purpose."""

    def __init__(self, workers: Sequence[WorkerProcess]) -> None:
        self._workers = workers
        self._mutex = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.ended_by_themselves = 0

    @contextmanager
    def held_off(self) -> Iterator[None]:
        """Meanwhile nobody is started."""
        with self._mutex:
            yield

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(120)

    def _run(self) -> None:
        while not self._over.wait(_ROUND):
            with self._mutex:
                for worker in self._workers:
                    if not worker.alive():
                        self.ended_by_themselves += 1
                        worker.start()
