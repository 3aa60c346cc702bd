"""Where a move's milliseconds go: the benchmark ``where``.

Responsible for: one run with a stopwatch in the worker, and the figures per move.
Must not know: how they are taken.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from benchmarks import moves
from benchmarks.report import table

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.stack import Stack

_PAUSE: Final = 100.0
"""Milliseconds: a longer gap between two jobs is not Celery's, there was no job."""


def measure_where(stack: Stack, rounds: int) -> str:
    """The figures of eight processes, without latency and with, per move: placing and retiring together. Markdown."""
    return "\n\n".join(
        _measure(stack, load) for load in (moves.Load(8, 25, 120 * rounds), moves.Load(8, 0, 200 * rounds))
    )


def _measure(stack: Stack, load: moves.Load) -> str:
    folder = stack.folder / f"timings-{load}"
    folder.mkdir()
    stack.proxy.delay(load.delay_ms / 1000)
    settings = {"REROOT_TEST_TIMINGS": str(folder)}
    with (
        stack.worker(load.processes, app="benchmarks.timed_worker", more=settings) as worker,
        moves.publisher(stack) as bell,
    ):
        moves.drive(stack, worker, bell, stack.lake.bear(8 * load.processes))
        for file in folder.iterdir():
            file.unlink()
        done = moves.drive(stack, worker, bell, stack.lake.bear(load.moves))
    spent = _per_move(folder, load.moves)
    rows = [(name, f"{wall:.1f}", f"{cpu:.1f}") for name, (wall, cpu) in spent.items()]
    whole = load.processes / done.per_second * 1000
    rows.append(("all of it: processes ÷ moves per second", f"{whole:.1f}", f"{done.children_ms:.1f}"))
    return table((f"{load.processes} processes, {load.delay_ms} ms", "ms per move", "of it CPU, ms"), rows)


def _per_move(folder: Path, count: int) -> dict[str, tuple[float, float]]:
    wall: defaultdict[str, float] = defaultdict(float)
    cpu: defaultdict[str, float] = defaultdict(float)
    for file in folder.iterdir():
        for line in file.read_text(encoding="utf-8").splitlines():
            spent = json.loads(line)
            gap = spent.pop("gap")
            wall["between two jobs" if gap < _PAUSE else "without a job"] += gap
            spent.pop("outcome")
            for name, milliseconds in spent.items():
                kind = cpu if name.endswith(" cpu") else wall
                kind[name.removesuffix(" cpu")] += milliseconds
    idle = wall["between two jobs"] + wall["without a job"]
    wall["rest of the attempt"] = 2 * wall["attempt"] + idle - sum(wall.values())
    cpu["rest of the attempt"] = 2 * cpu["attempt"] - sum(cpu.values())
    order = sorted(wall, key=lambda name: -wall[name])
    return {name: (wall[name] / count, cpu[name] / count) for name in order}
