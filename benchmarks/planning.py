"""Planning and enqueueing 100,000 datasets out of 1,000,000 log rows: the benchmark ``plan``.

Responsible for: a control plane of that size, the real ``reroot`` on it, its seconds and its memory.
Must not know: how it plans.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg

from benchmarks.measuring import memory
from benchmarks.report import table
from benchmarks.stack import ROOT, plain_environment
from demo.processes import ServiceError
from worker.controlplane import migrate

if TYPE_CHECKING:
    from benchmarks.stack import Services

DATASETS: Final = 100_000
ROWS_EACH: Final = 10
CATALOGS: Final = 100
SCHEMAS_EACH: Final = 5
_POLL: Final = 0.02

_FILL: Final = f"""
INSERT INTO workspaces SELECT gen_random_uuid() FROM generate_series(1, 10);
INSERT INTO catalogs (workspace_id, name)
    SELECT w.id, 'Catalog ' || n
    FROM generate_series(1, {CATALOGS}) n
    JOIN (SELECT id, row_number() OVER (ORDER BY id) AS place FROM workspaces) w ON w.place = 1 + n % 10;
INSERT INTO schemas (catalog_id, name)
    SELECT c.id, 'Schema ' || n FROM catalogs c, generate_series(1, {SCHEMAS_EACH}) n;
INSERT INTO datasets (workspace_id, schema_id, name)
    SELECT s.workspace_id, s.id, 'Dataset ' || n
    FROM generate_series(1, {DATASETS}) n
    JOIN (SELECT s.id, c.workspace_id, row_number() OVER (ORDER BY s.id) AS place
          FROM schemas s JOIN catalogs c ON c.id = s.catalog_id) s ON s.place = 1 + n % {CATALOGS * SCHEMAS_EACH};
INSERT INTO iceberg_sync_log (dataset_id, mode, status, iceberg_table, snapshot_id, row_count, finished_at)
    SELECT d.id, 'sync.append', 'succeeded', 'datasets.ds_' || replace(d.id::text, '-', ''), n, 10 * n, now()
    FROM datasets d, generate_series(1, {ROWS_EACH}) n;
ANALYZE;
"""

# What is said when there is something left to do is an exit code of its own: `check` finds every move unfinished.
_COMMANDS: Final = ((("plan", "--json"), 0), (("move", "--all"), 0), (("check",), 1))


def measure_planning(services: Services) -> str:
    """Plan, then plan and enqueue, as an operator does. Markdown."""
    url = services.postgres.create_database("large_control_plane")
    migrate.upgrade(url, with_baseline=True)
    with psycopg.connect(url) as connection:
        connection.execute(_FILL)
    environment = {
        **plain_environment(),
        "REROOT_DATABASE_URL": url,
        "REROOT_BROKER_URL": services.valkey.url(1),
        "REROOT_WAREHOUSE_TEMPLATE": "w_{workspace_hex}",
    }
    rows = [(f"`reroot {' '.join(words)}`", *_run(words, code, environment)) for words, code in _COMMANDS]
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT count(*) FROM reroot.moves WHERE state = 'queued'").fetchone()
    assert found == (DATASETS,), f"{found} rows in the ledger"
    services.postgres.drop_database("large_control_plane")
    return table((f"{DATASETS:,} datasets, {DATASETS * ROWS_EACH:,} log rows", "seconds", "peak memory, MB"), rows)


def _run(words: tuple[str, ...], expected: int, environment: dict[str, str]) -> tuple[str, str]:
    """Seconds, and the process's own peak of memory. Raises ServiceError where it ends otherwise than expected."""
    program = Path(sys.executable).with_name("reroot")
    began = time.monotonic()
    process = subprocess.Popen(
        [str(program), *words], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, memory(process.pid, "VmHWM"))
        time.sleep(_POLL)
    seconds = time.monotonic() - began
    _, said = process.communicate()
    if process.returncode != expected:
        raise ServiceError(f"reroot {' '.join(words)} ended with {process.returncode}: {said}")
    return f"{seconds:.1f}", f"{peak:.0f}"
