"""Folders of runs: each run has its own, dead ones are swept, live ones never."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from demo.runs import run_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_runs_that_start_at_the_same_time_leave_one_another_alone(tmp_path: Path) -> None:
    together, made = threading.Barrier(8), threading.Barrier(8)
    alive: list[bool] = []

    def run() -> None:
        together.wait(10)
        with run_folder(tmp_path) as folder:
            made.wait(10)
            alive.append((folder / "lock").exists())
            made.wait(10)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert alive == [True] * 8
    assert not list(tmp_path.glob("run-*"))


@pytest.mark.parametrize(("end", "kept"), [(RuntimeError, True), (KeyboardInterrupt, False)])
def test_only_a_failed_run_leaves_its_logs_until_the_next(tmp_path: Path, end: type[BaseException], kept: bool) -> None:
    with pytest.raises(end), run_folder(tmp_path):
        raise end
    assert bool(list(tmp_path.glob("run-*"))) is kept
    with run_folder(tmp_path) as folder:
        assert list(tmp_path.glob("run-*")) == [folder]
