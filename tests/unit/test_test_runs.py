"""What a run of the tests fetches, leaves out and says at its end, on machines that lack something."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.summary import Results
from tests.support import fetch_catalogs
from tests.support.left_out import lines

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]


BRINGS = """
for word; do case "$word" in -DoutputDirectory=*) folder="${word#*=}";; -Dartifact=*) asked="${word#*:}";; esac; done
mkdir -p "$folder"; : >"$folder/$(echo "$asked" | cut -d: -f1,2 | tr : -).jar"
"""
"""What Maven does with one artifact, as far as it matters here."""


def skipped(reason: str) -> Any:
    return SimpleNamespace(longrepr=("test_x.py", 1, f"Skipped: {reason}"))


@pytest.mark.parametrize(
    ("stats", "no_skip", "said"),
    [
        ({}, "", ["nothing was left out"]),
        ({"skipped": [skipped("no java"), skipped("no java")]}, "", ["2 left out: no java"]),
        ({"skipped": [skipped("no java")]}, "1", ["1 left out: no java", "the run fails for it"]),
        ({"xfailed": [object()] * 43}, "1", ["nothing was left out", "43 run and expected to fail"]),
    ],
)
def test_the_end_says_what_was_left_out(
    monkeypatch: pytest.MonkeyPatch, stats: dict[str, list[Any]], no_skip: str, said: list[str]
) -> None:
    monkeypatch.setenv("REROOT_TEST_NO_SKIP", no_skip)
    found = list(lines(stats))
    assert len(found) == len(said)
    assert all(line.startswith(beginning) for line, beginning in zip(found, said, strict=True))


@pytest.mark.parametrize(("no_skip", "code"), [("0", 0), ("1", 1)])
def test_a_run_that_may_leave_nothing_out_fails(tmp_path: Path, no_skip: str, code: int) -> None:
    (tmp_path / "test_some.py").write_text("import pytest\ndef test_it(): pytest.skip('no java')\n", encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.support.left_out", tmp_path],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "REROOT_TEST_NO_SKIP": no_skip},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == code, ended.stdout
    assert "1 left out: no java" in ended.stdout


@pytest.mark.parametrize(
    ("when", "outcome", "end"),
    [("setup", "failed", "not tried"), ("setup", "skipped", "not tried"), ("call", "failed", "broken")],
)
def test_a_catalog_that_was_not_tried_has_broken_no_promise(when: Any, outcome: Any, end: str) -> None:
    results = Results()
    place = "tests/contract/test_catalog_contract.py", 1, "TestDrop.test_twice"
    nodeid = "tests/contract/test_catalog_contract.py::TestDrop::test_twice[rest]"
    results.pytest_runtest_logreport(pytest.TestReport(nodeid, place, {}, outcome, "no java", when))
    assert results.ends == {("rest", "drop: twice"): (end, "no java")}


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a script in the place of ``mvn``, and the cache into an empty folder."""
    monkeypatch.setenv("REROOT_TEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def does(script: str) -> None:
        (tmp_path / "mvn").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / "mvn").chmod(0o755)

    return does


@pytest.mark.parametrize(
    ("script", "patience", "said"),
    [
        ("exec sleep 600", 0.2, "did not bring org.apache.iceberg:iceberg-open-api:1.10.1:jar in time"),
        ("echo no network; exit 1", 60, "did not bring org.apache.iceberg:iceberg-open-api:1.10.1:jar: no network"),
    ],
)
def test_a_fetch_that_brings_nothing_ends_and_stops_nothing(
    maven: Callable[[str], None], script: str, patience: float, said: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:  # fmt: skip
    maven(script)
    monkeypatch.setattr(fetch_catalogs, "SHORT_PATIENCE", patience)
    assert fetch_catalogs.main(["--if-possible"]) == 0
    assert said in capsys.readouterr().err
    assert list((tmp_path / "cache").iterdir()) == []
    monkeypatch.setattr(fetch_catalogs, "PATIENCE", patience)
    assert fetch_catalogs.main([]) == 1


def test_what_was_fetched_is_not_fetched_again(maven: Callable[[str], None], tmp_path: Path) -> None:
    maven(BRINGS + f'echo "$asked" >>"{tmp_path}/asked"')
    for _ in range(2):
        assert fetch_catalogs.main([]) == 0
    assert len((tmp_path / "asked").read_text().splitlines()) == 3


def test_the_build_runs_the_commands_of_the_readme_before_anything_else() -> None:
    readme = re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    build = re.findall(r"^\S*.*\bmake (\w+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert build[: len(readme)] == readme == ["demo", "test"]
