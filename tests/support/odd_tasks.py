"""A worker's app with jobs that end in every odd way, each guarded as the real ones are.

Started as ``celery -A tests.support.odd_tasks worker``. The first argument of a job is a file in which each of its runs
leaves a line.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from worker.app import app
from worker.outcome import Busy, Done, Ignored, Outcome, Park, ParkCode, Retry, Wait
from worker.tasks import Parked, job, shown

OUTCOMES: dict[str, Outcome] = {
    "done": Done("flipped"),
    "ignored": Ignored("nothing is due"),
    "busy": Busy(5, "the lock is held"),
    "wait": Wait(15, "warehouse lake is away"),
    "retry": Retry(10, "no answer from http://u:hunter2@host"),
    "park": Park(ParkCode.REFUSED, "http://u:hunter2@host said no", "reroot show"),
}


def _ran(marks: str) -> int:
    with Path(marks).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    return len(Path(marks).read_text(encoding="utf-8").splitlines())


@app.task(name="odd.outcome", throws=(Parked,))  # type: ignore[untyped-decorator]
def outcome(marks: str, name: str) -> str:
    with job(dataset_id=name):
        _ran(marks)
        return shown(OUTCOMES[name])


@app.task(name="odd.memory")  # type: ignore[untyped-decorator]
def memory(marks: str) -> None:
    with job(dataset_id="memory"):
        _ran(marks)
        raise MemoryError("no memory left")


@app.task(name="odd.exit")  # type: ignore[untyped-decorator]
def leave(marks: str) -> None:
    with job(dataset_id="exit"):
        _ran(marks)
        raise SystemExit(3)


@app.task(name="odd.sleep")  # type: ignore[untyped-decorator]
def sleep(marks: str, seconds: float) -> None:
    """Only its first run sleeps."""
    with job(dataset_id="sleep"):
        if _ran(marks) == 1:
            time.sleep(seconds)


@app.task(name="odd.killed")  # type: ignore[untyped-decorator]
def killed(marks: str) -> None:
    """Its first run kills its process."""
    with job(dataset_id="killed"):
        if _ran(marks) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
