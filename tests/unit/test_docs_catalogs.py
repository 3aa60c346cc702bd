"""What docs/catalogs.md rests on exists: each test that it names, each recorded step, each project that it read."""

from __future__ import annotations

import json
import re
from typing import Final

from tests.support.manual import ROOT

PAGE: Final = ROOT / "docs" / "catalogs.md"
RECORDED: Final = ROOT / "tests" / "data" / "recorded"
RECORDINGS: Final = {
    "lk13": "lakekeeper-0.13.3",
    "lkmain": "lakekeeper-main",
    "g120": "gravitino-1.2.0-authorization-on",
    "g121": "gravitino-1.2.1-authorization-on",
    "g130": "gravitino-1.3.0-authorization-on",
    "g121off": "gravitino-1.2.1-authorization-off",
    "g130off": "gravitino-1.3.0-authorization-off",
    "g121alone": "gravitino-1.2.1-standalone",
}
STEP: Final = re.compile(rf"`({'|'.join(RECORDINGS)}) ([^`]+)`")
TEST: Final = re.compile(r"`(test_\w+)`")


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def steps(key: str) -> list[str]:
    """The names of a recording's steps, what was left out of it included: it was recorded all the same."""
    lines = (RECORDED / f"{RECORDINGS[key]}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line).get("step") or "" for line in lines]


def test_every_recording_that_it_may_name_is_there_and_no_other() -> None:
    assert {path.stem for path in RECORDED.glob("*.jsonl")} == set(RECORDINGS.values())


def test_every_recorded_step_that_it_names_was_recorded() -> None:
    named = STEP.findall(text())
    assert len(named) > 40
    known = {key: steps(key) for key in RECORDINGS}
    assert not [(key, name) for key, name in named if not any(step.startswith(name) for step in known[key])]


def test_every_test_that_it_names_exists() -> None:
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))
    }
    named = set(TEST.findall(text()))
    assert len(named) > 30
    assert not named - there


def test_every_issue_is_of_a_project_that_is_known() -> None:
    known = {
        *("lakekeeper", "gravitino", "iceberg", "polaris", "nessie", "unitycatalog", "iceberg-python", "iceberg-go"),
        "apache/amoro",
    }
    named = set(re.findall(r"([\w/-]+)#\d+", text()))
    assert named <= known, named - known


def test_no_trap_is_told_without_its_evidence() -> None:
    evidence = re.compile(r"`test_\w+`|\*tried|read|inferred|" + STEP.pattern)
    tables = re.split(r"\n\n", text())
    traps = [table.splitlines()[2:] for table in tables if table.startswith("| trap |")]
    assert len(traps) >= 6
    assert not [row for table in traps for row in table if not evidence.search(row.rsplit(" | ", 1)[1])]


def test_the_tables_are_whole() -> None:
    for table in re.findall(r"(?:^\|.*\n)+", text(), re.MULTILINE):
        widths = {len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, table.splitlines()[0]
