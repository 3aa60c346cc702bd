"""Moves per second beside the bare loop, requests on the wire, processor time: the benchmarks ``moves`` and ``large``.

Responsible for: alternating rounds of a real worker and of the floor, through the same proxy, on tables of their own.
Must not know: how a move is done.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final

import psycopg

from benchmarks import bare
from benchmarks.measuring import Neighbours
from benchmarks.report import table
from benchmarks.stack import ROOT, Stack, Worker
from demo.processes import ServiceError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    from benchmarks.lake import Born

ONCE: Final = ("config", "token", "namespace", "list")
"""Requests that a process makes once, not once per move."""

PATIENCE: Final = 900
WARM_UP: Final = 5000
"""Tables that the bare loop moves before anything is measured: until then the server's virtual machine compiles, and
takes up to four times the processor time for a request."""

QUIET: Final = 0.3
BUSY: Final = 0.5
"""Cores that others may use before a round and during it. A round beside busier ones is done again, whatever came out
of it, for as long as there is patience."""


@dataclass(frozen=True, slots=True)
class Load:
    """One row of the table: so many processes, so much latency, so many moves in a round."""

    processes: int
    delay_ms: int
    moves: int

    def __str__(self) -> str:
        """As it is written on the command line."""
        return f"{self.processes}@{self.delay_ms}"


LOADS: Final = (
    Load(1, 25, 50),
    Load(8, 25, 360),
    Load(16, 25, 640),
    Load(1, 0, 240),
    Load(8, 0, 700),
    Load(16, 0, 700),
)


@dataclass(frozen=True, slots=True)
class Drive:
    """One round of a real worker."""

    per_second: float
    children_ms: float
    main_ms: float
    sweeper_ms: float
    requests: Counter[str]
    moves: int
    neighbours: float
    """Cores that others used meanwhile."""

    def per_move(self) -> float:
        """Requests per move, without those that a process makes once."""
        return sum(count for kind, count in self.requests.items() if kind not in ONCE) / self.moves


@dataclass(slots=True)
class Rounds:
    """All rounds of one load."""

    load: Load
    drives: list[Drive] = field(default_factory=list)
    floors: list[bare.Floor] = field(default_factory=list)
    disturbed: int = 0
    """Rounds that were done again because of a busy neighbour, whatever came out of them."""

    def ratio(self) -> float:
        """Median of the rounds' own ratios: what disturbs a round disturbs both of its halves."""
        return median(self.ratios())

    def ratios(self) -> list[float]:
        """Each round's own."""
        return [drive.per_second / floor.per_second for drive, floor in zip(self.drives, self.floors, strict=True)]

    def of(self, what: Callable[[Drive], float]) -> float:
        """Median over the drives."""
        return median(map(what, self.drives))


class Publisher:
    """``benchmarks.publisher``, told when to publish."""

    def __init__(self, stack: Stack) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.publisher"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=stack.environment(),
            start_new_session=True,
        )
        self._line()

    def publish(self) -> float:
        """Publish, and return when it began (seconds since the epoch)."""
        assert self._process.stdin is not None
        self._process.stdin.write("now\n")
        self._process.stdin.flush()
        return float(json.loads(self._line())["began"])

    def close(self) -> None:
        """End it."""
        with self._process:  # closes both pipes and waits
            pass

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ServiceError("the publisher has ended")
        return line


@contextmanager
def publisher(stack: Stack) -> Iterator[Publisher]:
    """A publisher for the length of the context."""
    running = Publisher(stack)
    try:
        yield running
    finally:
        running.close()


def measure_moves(stack: Stack, rounds: int, loads: tuple[Load, ...], patience: float) -> str:
    """The benchmark ``moves``: every load, in alternating rounds. Markdown."""
    return report([_rounds(stack, load, rounds, patience) for load in loads])


def warm_up(stack: Stack) -> None:
    """Make the namespaces, and let the server's virtual machine compile what it will run."""
    bare.prepare(stack.server_port, [place.namespace for place in stack.population.places])
    stack.proxy.delay(0)
    bare.run(stack.proxy.port, errands(stack, stack.lake.bear(WARM_UP)), 8)


def measure_large(stack: Stack, snapshots: int = 2000, moves: int = 100) -> str:
    """The benchmark ``large``: tables with a long history. Markdown."""
    born = stack.lake.bear(moves, snapshots=snapshots)
    size = len(open_bytes(born[0])) / 1e6
    stack.proxy.delay(0.025)
    with stack.worker(8) as worker, publisher(stack) as bell:
        done = drive(stack, worker, bell, born)
    return table(
        ("snapshots", "metadata, MB", "moves/s", "CPU children, ms", "CPU main, ms", "requests"),
        [
            (
                f"{snapshots:,}",
                f"{size:.1f}",
                f"{done.per_second:.1f}",
                f"{done.children_ms:.1f}",
                f"{done.main_ms:.1f}",
                f"{done.per_move():.2f}",
            )
        ],
    )


def open_bytes(one: Born) -> bytes:
    """A table's metadata file."""
    with open(one.metadata_location.removeprefix("file://"), "rb") as stream:  # noqa: PTH123 - a location's path
        return stream.read()


def errands(stack: Stack, born: list[Born]) -> list[bare.Errand]:
    """The same tables' way for the bare loop."""
    places = stack.population.places
    return [
        bare.Errand(
            (".".join(one.identifier.namespace), one.identifier.name),
            (places[number % len(places)].namespace, one.identifier.name),
            one.metadata_location,
            (one.metadata_location.removeprefix("file://"), *stack.lake.soaked),
        )
        for number, one in enumerate(born)
    ]


def drive(stack: Stack, worker: Worker, bell: Publisher, born: list[Born]) -> Drive:
    """Queue the tables, publish, and wait until every move is done."""
    namespaces = stack.population.settle(born)
    stack.population.enqueue(born, namespaces)
    stack.proxy.reset()
    before = worker.cpu()
    others = Neighbours()
    began = bell.publish()
    ended = _all_done(stack, [one.dataset_id for one in born])
    used = {name: (value - before[name]) / len(born) * 1000 for name, value in worker.cpu().items()}
    return Drive(
        len(born) / (ended - began),
        used["children"],
        used["main"],
        used["sweeper"],
        stack.proxy.counts(),
        len(born),
        others.cores(),
    )


def report(results: list[Rounds]) -> str:
    """Markdown."""
    heads = (
        "added latency, ms",
        "processes",
        "bare loop, tables/s",
        "moves/s",
        "**ratio**",
        "ratio of each round",
        "requests per move",
        "CPU children, ms",
        "CPU main, ms",
        "CPU bare loop, ms",
        "cores used by others",
        "rounds done again",
    )
    return table(
        heads,
        [
            (
                str(one.load.delay_ms),
                str(one.load.processes),
                f"{median(floor.per_second for floor in one.floors):.1f}",
                f"{one.of(lambda each: each.per_second):.1f}",
                f"**{one.ratio():.2f}**",
                ", ".join(f"{ratio:.2f}" for ratio in one.ratios()),
                f"{one.of(Drive.per_move):.2f}",
                f"{one.of(lambda each: each.children_ms):.1f}",
                f"{one.of(lambda each: each.main_ms):.1f}",
                f"{median(floor.cpu_ms for floor in one.floors):.1f}",
                f"{one.of(lambda each: each.neighbours):.1f}",
                str(one.disturbed),
            )
            for one in results
        ],
    )


def _rounds(stack: Stack, load: Load, rounds: int, patience: float) -> Rounds:
    results = Rounds(load)
    with stack.worker(load.processes) as worker, publisher(stack) as bell:
        stack.proxy.delay(0)
        drive(stack, worker, bell, stack.lake.bear(10 * load.processes))
        stack.proxy.delay(load.delay_ms / 1000)
        until = time.monotonic() + patience
        while len(results.drives) < rounds:
            Neighbours().wait_for_quiet(QUIET, until)
            floor, done, beside = _round(stack, load, worker, bell)
            print(f"{_progress(load, floor, done)}; others used {beside:.1f} cores", file=sys.stderr, flush=True)
            if beside < BUSY or time.monotonic() > until:
                results.floors.append(floor)
                results.drives.append(done)
            else:
                results.disturbed += 1
    return results


def _round(stack: Stack, load: Load, worker: Worker, bell: Publisher) -> tuple[bare.Floor, Drive, float]:
    """The loop, then the worker; and the cores that others used beside the busier of the two."""
    born, other = stack.lake.bear(load.moves), stack.lake.bear(load.moves)
    others = Neighbours()
    floor = bare.run(stack.proxy.port, errands(stack, other), load.processes)
    beside = others.cores()
    done = drive(stack, worker, bell, born)
    return floor, done, max(beside, done.neighbours)


def _progress(load: Load, floor: bare.Floor, done: Drive) -> str:
    """One line about a round."""
    return (
        f"{load}: bare {floor.per_second:.1f}/s, moves {done.per_second:.1f}/s,"
        f" ratio {done.per_second / floor.per_second:.2f}; {dict(done.requests)}; CPU children {done.children_ms:.1f},"
        f" main {done.main_ms:.1f}, sweeper {done.sweeper_ms:.1f}, bare {floor.cpu_ms:.1f}"
    )


def _all_done(stack: Stack, ids: list[str]) -> float:
    """Wait until all are done; when the last one was, by the database's clock, which is this machine's."""
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(stack.control_plane_url, autocommit=True) as connection:
        while True:
            row = connection.execute(
                "SELECT count(*) FILTER (WHERE state = 'done'), count(*) FILTER (WHERE state = 'parked'),"
                " min(park_text), extract(epoch FROM max(done_at))::float8"
                " FROM reroot.moves WHERE dataset_id = ANY(%s)",
                (ids,),
            ).fetchone()
            assert row is not None
            done, parked, why, last = row
            if parked:
                raise ServiceError(f"{parked} moves were parked: {why}")
            if done == len(ids):
                return float(last)
            if time.monotonic() > deadline:
                raise ServiceError(f"{done} of {len(ids)} moves are done after {PATIENCE} s")
            time.sleep(0.25)
