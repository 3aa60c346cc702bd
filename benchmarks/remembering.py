"""A worker's memory over 10,000 moves: the benchmark ``memory``.

Responsible for: a worker as it is shipped, fed until it has done them, and its memory on the way.
Must not know: how a move is done.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psycopg

from benchmarks import moves
from benchmarks.measuring import memory, proportional
from benchmarks.report import table
from demo.processes import ServiceError

if TYPE_CHECKING:
    from benchmarks.stack import Stack, Worker

MOVES: Final = 10_000
PROCESSES: Final = 8
STEP: Final = 1000
PATIENCE: Final = 1800


@dataclass(frozen=True, slots=True)
class Look:
    """Memory in MB at one moment."""

    done: int
    children: tuple[float, ...]
    main: float
    sweeper: float
    together: float
    """Shared pages counted once."""


def measure_memory(stack: Stack, count: int = MOVES) -> str:
    """Memory each time a tenth of the moves is done. Markdown."""
    stack.proxy.delay(0)
    with stack.worker(PROCESSES) as worker, moves.publisher(stack) as bell:
        moves.drive(stack, worker, bell, stack.lake.bear(20 * PROCESSES))
        looks = [_look(worker, 0)]
        born = stack.lake.bear(count)
        stack.population.enqueue(born, stack.population.settle(born))
        before = _attempts(stack)
        bell.publish()
        # Placing goes before retiring, so attempts are counted: each move takes two.
        looks += [_when(stack, worker, before, 2 * done) for done in range(STEP, count + 1, STEP)]
    rows = [
        (
            f"{one.done // 2:,}",
            f"{min(one.children):.0f}-{max(one.children):.0f}",
            f"{one.main:.0f}",
            f"{one.sweeper:.0f}",
            f"{one.together:.0f}",
        )
        for one in looks
    ]
    return table(
        ("moves", "each child, MB", "main process, MB", "sweeper, MB", "all of it, shared pages once, MB"), rows
    )


def _when(stack: Stack, worker: Worker, before: int, attempts: int) -> Look:
    """The look once so many attempts have ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if _attempts(stack) - before >= attempts:
            return _look(worker, attempts)
        time.sleep(1)
    raise TimeoutError(f"{attempts} attempts have not ended within {PATIENCE} s")


def _attempts(stack: Stack) -> int:
    """Attempts that got their move on to the next state. Raises ServiceError when one was parked."""
    with psycopg.connect(stack.control_plane_url) as connection:
        row = connection.execute(
            "SELECT count(*) FILTER (WHERE event IN ('flipped', 'done')), count(*) FILTER (WHERE event = 'parked')"
            " FROM reroot.move_events"
        ).fetchone()
    assert row is not None
    if row[1]:
        raise ServiceError(f"{row[1]} moves were parked")
    return int(row[0])


def _look(worker: Worker, done: int) -> Look:
    pool = worker.pool()
    sweepers = worker.sweeper()
    return Look(
        done,
        tuple(map(memory, pool)),
        memory(worker.main),
        sum(map(memory, sweepers)),
        sum(map(proportional, [worker.main, *pool, *sweepers])),
    )
