"""Memory stays flat: a million log rows and a hundred thousand datasets are planned and ordered within 150 MB."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.operator import Operator
from tests.support.place import Place

if TYPE_CHECKING:
    from tests.support.controlplane import ControlPlaneFixture

DATASETS: Final = 100_000
ROWS_EACH: Final = 10
LIMIT_MB: Final = 150

# The kernel's own peak of this program; a child's ru_maxrss would begin with that of the process it was forked from.
_MEASURED: Final = """
import re, sys
from pathlib import Path
from producer.commands import run
code = run(sys.argv[1:])
print(int(re.search("VmHWM:[^0-9]*([0-9]+)", Path("/proc/self/status").read_text())[1]) // 1024, file=sys.stderr)
sys.exit(code)
"""


def fill(place: Place) -> None:
    place.control_plane.execute(
        "INSERT INTO datasets (id, workspace_id, schema_id, name)"
        " SELECT md5(i::text)::uuid, %s, %s, 'Dataset ' || i FROM generate_series(1, %s) i",
        (place.workspace, place.schema, DATASETS),
    )
    place.control_plane.execute(
        "INSERT INTO iceberg_sync_log (dataset_id, mode, status, iceberg_table, started_at, finished_at)"
        " SELECT d.id, 'sync.full', 'succeeded', 'datasets.ds_' || replace(d.id::text, '-', ''), now(), now()"
        " FROM datasets d, generate_series(1, %s)",
        (ROWS_EACH,),
    )


def megabytes(operator: Operator, *arguments: str, code: int = 0) -> int:
    ended = subprocess.run(
        [sys.executable, "-c", _MEASURED, *arguments],
        env=dict(operator.environment()),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    return int(ended.stderr.splitlines()[-1])


@pytest.mark.timeout(300)
def test_a_million_log_rows(control_plane: ControlPlaneFixture, database: str, valkey: str) -> None:
    fill(Place(control_plane))
    operator = Operator(database, valkey)
    used = {
        "plan": megabytes(operator, "plan", "--json"),
        "move": megabytes(operator, "move", "--all"),
        "check": megabytes(operator, "check", code=1),
    }
    assert control_plane.execute("SELECT count(*) FROM reroot.moves WHERE state = 'queued'") == [(DATASETS,)]
    assert max(used.values()) < LIMIT_MB, used


def test_what_a_producer_does_not_need_is_not_imported() -> None:
    heavy = "{'pyarrow', 'pyiceberg', 'alembic', 'sqlalchemy', 'numpy'} & set(sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; import producer.commands; print({heavy})"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout.strip() == "set()"
