"""The first run: it tells the whole story, and leaves nothing behind however it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from demo.processes import wait_until
from demo.stack import FLOWER_COLUMNS
from tests.support.processes import descendants, running_in, still_running

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def demo(folder: Path, *options: str, ignored: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run the demo in ``folder``; whatever the test finds, nothing of it is left running.

    ``ignored``: signals that it inherits as ignored, as the shell names them.
    """
    shell = ["/bin/sh", "-c", f"trap '' {ignored}; exec \"$@\"", "sh"] if ignored else []
    command = [*shell, sys.executable, "-m", "demo", "--folder", str(folder), *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes) as running:
        try:
            yield running
        finally:
            running.kill()


def read_until(running: subprocess.Popen[str], text: str) -> str:
    """Its output up to the line that holds ``text``."""
    assert running.stdout is not None
    said = ""
    for line in running.stdout:
        said += line
        if text in line:
            return said
    raise AssertionError(f"it ended without saying {text!r}:\n{said}{running.stderr.read() if running.stderr else ''}")


def test_it_moves_everything_proves_it_and_stays_up_when_asked(tmp_path: Path) -> None:
    folder = tmp_path / "a path with spaces"
    with demo(folder, "--keep") as running:
        said = read_until(running, "Flower: ")
        assert "367,720 rows are the same" in said
        assert "32 tables have a new name" in said
        assert "files are the same, byte for byte: none added, none gone" in said
        assert "342 + 3 = 345 rows, read back by DuckDB" in said
        assert "Nothing movable is left" in said
        try_what_it_says(said)
        started = descendants(running.pid)
        running.send_signal(signal.SIGINT)
        rest, complaints = running.communicate(timeout=60)
    assert (running.returncode, complaints) == (0, "")
    assert "nothing is left running" in rest
    assert not still_running(started)
    assert not running_in(folder)
    assert not list(folder.glob("run-*"))


def try_what_it_says(said: str) -> None:
    """Do what a person would: paste the lines into a shell, open the address."""
    story, _, advice = said.partition("In another terminal:")
    too_wide = [line for line in story.splitlines() if len(line) > 80 and not re.search(r"ds_[0-9a-f]{32}", line)]
    assert not too_wide
    shell = "\n".join(line for line in advice.splitlines() if line.startswith(("cd ", "export ")) or " status" in line)
    status = subprocess.run(
        ["/bin/sh", "-ec", f"{shell} --json"],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert '"done"' in status.stdout
    flower = advice.rpartition("Flower: ")[2].strip()
    shown = urllib3.request("GET", flower, timeout=10, retries=False)
    assert shown.status == 200
    assert all(f'data-column="{name}"' in shown.data.decode() for name in FLOWER_COLUMNS.split(","))
    listed = urllib3.request("GET", f"{flower.removesuffix('/tasks')}/api/tasks", timeout=10, retries=False).json()
    assert "SUCCESS" in {task["state"] for task in listed.values()}  # the demo's own moves


@pytest.mark.parametrize(
    ("moment", "number", "ignored"),
    [
        ("Starting two workers", signal.SIGTERM, ""),
        ("Starting two workers", signal.SIGHUP, ""),
        ("Then all of them", signal.SIGINT, "INT"),
    ],
)
def test_interrupted_it_leaves_nothing_behind(
    tmp_path: Path, moment: str, number: signal.Signals, ignored: str
) -> None:
    with demo(tmp_path, ignored=ignored) as running:
        read_until(running, moment)
        started = descendants(running.pid)
        assert any("postgres" in process.command for process in started)
        running.send_signal(number)
        said, complaints = running.communicate(timeout=60)
    assert (running.returncode, complaints) == (130, "")
    assert "Interrupted; nothing is left running" in said
    wait_until(lambda: not still_running(started), seconds=10, what="everything that it started is gone")
    assert not running_in(tmp_path)
    assert not list(tmp_path.glob("run-*"))


def test_under_nohup_it_goes_on_when_its_terminal_closes(tmp_path: Path) -> None:
    with demo(tmp_path, ignored="INT HUP") as running:
        read_until(running, "Creating the control plane")
        running.send_signal(signal.SIGHUP)
        read_until(running, "Starting two workers")
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
    assert running.returncode == 130


def test_killed_it_leaves_nothing_running_and_the_next_run_cleans_up(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        read_until(running, "Then all of them")
        started = descendants(running.pid)
        running.kill()
        running.wait(10)
    wait_until(lambda: not still_running(started), seconds=30, what="everything that it started is gone")
    left = list(tmp_path.glob("run-*"))
    assert left
    with demo(tmp_path) as running:
        read_until(running, "Creating the control plane")
        assert not any(folder.exists() for folder in left)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)


def test_two_runs_do_not_meet(tmp_path: Path) -> None:
    with demo(tmp_path) as first, demo(tmp_path) as second:
        for running in (first, second):
            read_until(running, "Writing 34 datasets")
        assert len(list(tmp_path.glob("run-*"))) == 2
        for running in (first, second):
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=60)
            assert running.returncode == 130
