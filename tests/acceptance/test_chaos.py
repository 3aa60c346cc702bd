"""A short chaos run: real workers, disasters by a seed, and nothing is lost. ``make chaos`` runs longer ones."""

from __future__ import annotations

import pytest

from tests.chaos.plan import OF_PROCESSES, OF_THE_CATALOG
from tests.chaos.report import report, table
from tests.chaos.run import Options, run

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize(
    "options",
    [
        Options(datasets=40, seconds=45, seed=7, strategy="register"),
        Options(datasets=24, seconds=20, seed=7, strategy="rename"),
    ],
    ids=lambda options: options.strategy,
)
def test_nothing_is_lost_in_a_short_chaos(options: Options, tmp_path_factory: pytest.TempPathFactory) -> None:
    result = run(options, tmp_path_factory.mktemp("chaos"), lambda _: None)
    told = report(result)
    assert told["violations"] == [], table(told)
    # What a run without disasters would show is nothing.
    assert sum(count for disaster, count in result.struck.items() if disaster in OF_PROCESSES) >= 2
    assert sum(count for disaster, count in result.struck.items() if disaster in OF_THE_CATALOG) >= 3
    assert sum(result.faults.values()) >= 3
    assert result.processes_killed >= 1
    assert told["datasets"].get("done", 0) >= options.datasets * 3 // 4
