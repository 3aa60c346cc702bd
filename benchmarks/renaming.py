"""How long readers miss a table that is renamed: the benchmark ``rename``.

Moves by rename without added latency and with it, and one of a dataset with many log rows.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final

import psycopg

from benchmarks.report import table
from demo.processes import ServiceError

if TYPE_CHECKING:
    from benchmarks.stack import Stack

MOVES: Final = 200
LOG_ROWS: Final = 300_000
_PROCESSES: Final = 8
_PATIENCE: Final = 180.0
_MORE_LOG: Final = """
INSERT INTO iceberg_sync_log (dataset_id, mode, status, iceberg_table, snapshot_id, row_count, finished_at)
SELECT dataset_id, mode, status, iceberg_table, snapshot_id, row_count, finished_at
FROM iceberg_sync_log, generate_series(2, %s) WHERE dataset_id = %s
"""
_LEFT: Final = "SELECT count(*) FROM reroot.moves WHERE dataset_id = ANY(%s) AND state <> 'done'"


def measure_rename(stack: Stack) -> str:
    """The benchmark ``rename``. Markdown."""
    heads = (
        "added latency, ms",
        "moves",
        "log rows each",
        "rename's answer to commit's answer, ms: p50",
        "p99",
        "most",
        "rename's request to commit's answer, ms: p50",
        "p99",
        "log rows held before the rename's answer, ms: p50",
    )
    loads = ((0, MOVES, 1), (25, MOVES, 1), (0, 1, LOG_ROWS))
    return table(heads, [_measure(stack, *load) for load in loads])


def _measure(stack: Stack, delay_ms: int, count: int, log_rows: int) -> tuple[str, ...]:
    folder = stack.folder / f"windows-{delay_ms}-{log_rows}"
    folder.mkdir()
    stack.proxy.delay(delay_ms / 1000)
    more = {"REROOT_STRATEGY": "rename", "REROOT_TEST_TIMINGS": str(folder)}
    born = stack.lake.bear(count)
    ids = [one.dataset_id for one in born]
    with psycopg.connect(stack.control_plane_url, autocommit=True) as plane:
        namespaces = stack.population.settle(born)
        if log_rows > 1:
            plane.execute(_MORE_LOG, (log_rows, ids[0]))
        with stack.worker(_PROCESSES, app="benchmarks.windowed_worker", more=more):
            stack.population.enqueue(born, namespaces)
            plane.execute("NOTIFY reroot_due")
            until = time.monotonic() + _PATIENCE
            while plane.execute(_LEFT, (ids,)).fetchone() != (0,):
                if time.monotonic() > until:
                    raise ServiceError(f"not all moves were done within {_PATIENCE:g} s")
                time.sleep(0.1)
    seen = [json.loads(line) for file in folder.iterdir() for line in file.read_text(encoding="utf-8").splitlines()]
    if len(seen) != count:
        raise ServiceError(f"{len(seen)} windows were noted, {count} moves were made")
    window = [(one["commit"] - one["rename"]) * 1000 for one in seen]
    missing = [(one["commit"] - one["rename begun"]) * 1000 for one in seen]
    held = [(one["rename"] - one["reserve begun"]) * 1000 for one in seen]
    figures = (median(window), _p99(window), max(window), median(missing), _p99(missing), median(held))
    row = (str(delay_ms), str(len(seen)), f"{log_rows:,}", *(f"{figure:,.1f}" for figure in figures))
    print(*row, file=sys.stderr, flush=True)
    return row


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[98] if len(values) > 1 else values[0]
