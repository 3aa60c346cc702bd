"""The documents say what the code says: codes, reasons, settings, commands, links."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
from typer.main import get_command

from producer.caution import Caution
from producer.closing import Left
from producer.commands import app
from producer.plan import Reason
from tests.support.manual import MANUAL, ROOT, code, documents, rows, section
from worker.outcome import ParkCode
from worker.settings import SECRETS, VARIABLES, Settings, describe, variable

if TYPE_CHECKING:
    from enum import StrEnum
    from pathlib import Path

LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
NAMED: Final = re.compile(r"(?<![\w/.-])reroot((?: [^\s|;#&]+)*)")


def first_cells(heading: str) -> list[str]:
    return [cells[0].strip("`") for cells in rows(section(heading))]


@pytest.mark.parametrize(
    ("heading", "values"),
    [
        ("What a parked dataset needs", ParkCode),
        ("What a plan's reasons mean", Reason),
        ("What a plan's warnings mean", Caution),
        ("Canary, batches, check", Left),
    ],
)
def test_each_value_has_its_row_and_each_row_its_value(heading: str, values: type[StrEnum]) -> None:
    assert sorted(first_cells(heading)) == sorted(value.value for value in values)


@pytest.mark.parametrize(
    "heading", ["What a parked dataset needs", "What a plan's reasons mean", "What a plan's warnings mean"]
)
def test_each_row_says_what_it_means_and_what_to_do(heading: str) -> None:
    assert not [cells for cells in rows(section(heading)) if len(cells) != 3 or not all(cells)]


def test_the_settings_table_has_every_setting_with_its_default() -> None:
    table = {cells[0].strip("`"): cells[1].strip("`") for cells in rows(section("Settings"))}
    assert table == {name: shown.strip("()") for name, shown, _ in describe(Settings())}


def test_the_settings_table_says_what_is_secret() -> None:
    told = {cells[0].strip("`") for cells in rows(section("Settings")) if "ecret" in cells[2]}
    assert told == {variable(name) for name in SECRETS}


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_no_document_names_a_setting_that_there_is_not(path: Path) -> None:
    named = set(re.findall(r"REROOT_[A-Z][A-Z0-9_]*[A-Z0-9]", path.read_text(encoding="utf-8")))
    assert not {name for name in named if name not in VARIABLES and not name.startswith("REROOT_TEST_")}


def commands() -> dict[str, set[str]]:
    """Every command by its full name, with its options."""
    found: dict[str, set[str]] = {}

    def descend(command: Any, path: tuple[str, ...]) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            descend(inner, (*path, name))
        if path and not getattr(command, "commands", {}):
            found[" ".join(path)] = {option for parameter in command.params for option in parameter.opts}

    descend(get_command(app), ())
    return found


COMMANDS: Final = commands()
ALONE: Final = {option for parameter in get_command(app).params for option in parameter.opts} | {"--help"}
"""Options that stand without a command."""
GROUPS: Final = {name.split()[0] for name in COMMANDS if " " in name}


def called(words: list[str]) -> str:
    """The command that these words call, as the program reads them."""
    return " ".join(words[:2] if words[0] in GROUPS and len(words) > 1 else words[:1])


def calls() -> list[tuple[str, list[str]]]:
    """Each place where a document calls the program, and the words that follow its name."""
    return [
        (path.name, found.split())
        for path in documents()
        for found in NAMED.findall(code(path.read_text(encoding="utf-8")))
        if found.strip()
    ]


def test_every_command_that_is_named_exists() -> None:
    assert len(calls()) > 30
    known = COMMANDS.keys() | GROUPS | ALONE
    assert not [(name, words) for name, words in calls() if called(words) not in known]


def test_every_option_that_is_named_exists() -> None:
    wrong = [
        (name, words)
        for name, words in calls()
        for word in words
        if word.startswith("--") and word not in COMMANDS.get(called(words), set()) | ALONE
    ]
    assert not wrong


def test_every_command_is_named() -> None:
    assert COMMANDS.keys() <= {called(words) for _, words in calls()}


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as they are shown on the web."""
    counts: Counter[str] = Counter()
    found = set()
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.add(f"{plain}-{counts[plain]}" if counts[plain] else plain)
        counts[plain] += 1
    return found


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    lost = []
    for link in LINK.findall(path.read_text(encoding="utf-8")):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        there = (path.parent / name).resolve() if name else path
        if not there.exists() or (anchor and anchor not in anchors(there)):
            lost.append(link)
    assert not lost


def test_the_changelog_has_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert re.search(
        rf"^## \[?{re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )


def test_every_decision_is_half_a_page() -> None:
    lengths = {
        path.name: len(path.read_text(encoding="utf-8").split()) for path in (ROOT / "docs/decisions").glob("*.md")
    }
    assert lengths
    assert not {name: words for name, words in lengths.items() if words > 350}


def test_the_manual_is_the_one_that_the_code_points_to() -> None:
    assert MANUAL.relative_to(ROOT).as_posix() in (ROOT / "worker/outcome.py").read_text(encoding="utf-8")
