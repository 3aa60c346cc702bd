"""Seconds from a kill inside the window of a rename until the rename is settled: the benchmark ``kill``.

Responsible for: a worker that is stopped between the catalog's answer and the flip and then killed with all of its
processes, beside another worker with a queue before it; when its dataset is marked, and when it is settled.
Must not know: how it is settled.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import psycopg
import redis

from benchmarks.measuring import children
from benchmarks.report import table
from demo.processes import ServiceError

if TYPE_CHECKING:
    from benchmarks.lake import Born
    from benchmarks.stack import Stack, Worker

QUEUED: Final = (0, 1000)
"""Messages that wait before the other worker."""
PROCESSES: Final = 2
"""Of the other worker."""
BUSY_AFTER: Final = 3
"""Moves of the other worker before the kill, where messages wait."""
PATIENCE: Final = 60.0
POLL: Final = 0.005

_SHIPPED: Final = {
    "REROOT_STRATEGY": "rename",
    "REROOT_SWEEP_INTERVAL_SECONDS": "15",
    # The server ends an idle window after this and 5 s more: the other worker has to start within it.
    "REROOT_CATALOG_TIMEOUT_SECONDS": "40",
}
_LATENCY: Final = 0.025
_WINDOW: Final = 1.0
"""Latency while the first worker renames: the window is as long as one look."""

_STANDS: Final = "SELECT EXISTS (SELECT FROM iceberg_tables WHERE table_namespace = %s AND table_name = %s)"
_SEEN: Final = """
SELECT m.urgent OR m.claim > %(claim)s, d.iceberg_namespace IS NOT NULL
FROM reroot.moves m JOIN datasets d ON d.id::text = m.dataset_id WHERE m.dataset_id = %(dataset)s
"""
_DONE: Final = "SELECT count(*) FROM reroot.moves WHERE state = 'done'"


@dataclass(frozen=True, slots=True)
class Settled:
    """Seconds after the kill."""

    marked: float
    """Until a sweeper's round had found it."""
    settled: float
    """Until the column names where the table is."""


def measure_kill(stack: Stack, rounds: int) -> str:
    """The benchmark ``kill``. Markdown."""
    heads = ("messages that wait", "kill to the sweeper's round, s", "round to settled, s", "kill to settled, s")
    return table(heads, [_row(queued, [_round(stack, queued) for _ in range(rounds)]) for queued in QUEUED])


def _row(queued: int, seen: list[Settled]) -> tuple[str, ...]:
    columns = (
        [one.marked for one in seen],
        [one.settled - one.marked for one in seen],
        [one.settled for one in seen],
    )
    return (f"{queued:,}", *(f"{median(values):.2f} (at most {max(values):.2f})" for values in columns))


def _round(stack: Stack, queued: int) -> Settled:
    with psycopg.connect(stack.control_plane_url, autocommit=True) as plane:
        (born,) = stack.lake.bear(1)
        with stack.worker(1, more=_SHIPPED) as victim:
            family = _stopped_in_the_window(stack, plane, born, victim)
            stack.proxy.delay(_LATENCY)
            others = stack.lake.bear(queued)
            if others:
                stack.population.enqueue(others, stack.population.settle(others))
            with stack.worker(PROCESSES, more=_SHIPPED):
                busy = _one(plane, _DONE) + (BUSY_AFTER if others else 0)
                _wait(lambda: _one(plane, _DONE) >= busy, "the other worker is busy")
                seen = _kill(plane, born, family)
                _forget_the_rest(stack, plane)
    print(f"{queued} queued: marked {seen.marked:.2f} s, settled {seen.settled:.2f} s", file=sys.stderr, flush=True)
    return seen


def _stopped_in_the_window(stack: Stack, plane: psycopg.Connection, born: Born, victim: Worker) -> list[int]:
    """Let the worker rename one table, and stop all of its processes before it has flipped; their ids."""
    stack.proxy.delay(_WINDOW)
    (namespace,) = stack.population.settle([born])
    stack.population.enqueue([born], [namespace])
    plane.execute("NOTIFY reroot_due")
    with psycopg.connect(stack.catalog_url, autocommit=True) as catalog:
        _wait(lambda: _one(catalog, _STANDS, namespace, born.identifier.name), "the table is renamed")
    family = [victim.main, *children(victim.main)]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    return family


def _kill(plane: psycopg.Connection, born: Born, family: list[int]) -> Settled:
    dataset = born.dataset_id
    claim, flipped = plane.execute(
        "SELECT m.claim, d.iceberg_namespace FROM reroot.moves m JOIN datasets d ON d.id::text = m.dataset_id"
        " WHERE m.dataset_id = %s AND m.attempt_started_at IS NOT NULL",
        (dataset,),
    ).fetchone() or (None, None)
    if claim is None or flipped is not None:
        raise ServiceError("the rename was settled before its worker was killed")
    began = time.monotonic()
    for pid in family:
        os.kill(pid, signal.SIGKILL)
    marked: float | None = None
    while time.monotonic() - began < PATIENCE:
        found: Any = plane.execute(_SEEN, {"claim": claim, "dataset": dataset}).fetchone()
        now = time.monotonic() - began
        marked = now if marked is None and found[0] else marked
        if found[1]:
            return Settled(now if marked is None else marked, now)
        time.sleep(POLL)
    raise ServiceError(f"the rename was not settled within {PATIENCE:g} s")


def _forget_the_rest(stack: Stack, plane: psycopg.Connection) -> None:
    """Let what still waits be no work for the next round."""
    plane.execute("DELETE FROM reroot.moves WHERE state = 'queued' AND attempt_started_at IS NULL")
    with redis.Redis.from_url(stack.settings["REROOT_BROKER_URL"]) as broker:
        broker.delete("moves")


def _one(connection: psycopg.Connection, query: str, *values: object) -> Any:
    row: Any = connection.execute(query.encode(), values).fetchone()
    return row[0]


def _wait(condition: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise ServiceError(f"{what}: not within {PATIENCE:g} s")
        time.sleep(POLL)
