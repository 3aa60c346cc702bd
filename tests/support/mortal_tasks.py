"""The worker's app, with one child process that dies by SIGKILL at a chosen call of a chosen dataset's move.

Started as ``celery -A tests.support.mortal_tasks worker``. ``REROOT_TEST_CRASH`` is ``DATASET CALL FILE``: the first
attempt at that dataset that makes the call dies there, after its effect; ``FILE`` remembers that it happened.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.support.crashing import Moment, Points, Watched
from worker import wiring
from worker.app import app
from worker.moves.attempt import Mover

__all__ = ["app"]

DATASET, CALL, FILE = os.environ["REROOT_TEST_CRASH"].split(" ", 2)  # noqa: TID251 - a test's own variable


class Mortal(Points):
    """Dies at the first call of that name, once in the life of the test."""

    def around(self, name: str, call: Any) -> Any:
        result = call()
        if name == CALL and not Path(FILE).exists():
            Path(FILE).write_text(str(os.getpid()), encoding="utf-8")
            os.kill(os.getpid(), signal.SIGKILL)
        return result


class MortalMover:
    """A mover whose chosen dataset kills its process."""

    def __init__(self, mover: Mover) -> None:
        self._mover = mover
        points = Mortal(moment=Moment.AFTER)
        self._mortal = Mover(
            Watched(mover.controlplane, "ledger", points), Watched(mover.lakehouse, "lakehouse", points), mover.policy
        )

    def attempt(self, dataset_id: str) -> Any:
        mover = self._mortal if dataset_id == DATASET else self._mover
        return mover.attempt(dataset_id)


_build = wiring.build


def build(*arguments: Any, **keywords: Any) -> Any:
    """The worker's own runtime, with a mortal mover."""
    runtime = _build(*arguments, **keywords)
    return wiring.Runtime(runtime.settings, runtime.controlplane, runtime.lakehouse, MortalMover(runtime.mover))  # type: ignore[arg-type]  # it has what a mover has


wiring.build = build
