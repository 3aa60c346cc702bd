"""House rules that no linter knows: short modules, plain names, nothing unfinished, nothing about its making."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
LONGEST_MODULE: Final = 500
LONGEST_PACKAGE_FILE: Final = 40
VAGUE: Final = {"utils", "util", "common", "base", "helpers", "helper", "misc", "shared", "tools"}
# Spelt so that this file is not its own first find.
UNFINISHED: Final = re.compile(r"\b({})\b".format("|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"))))
# Paths of one machine, and addresses that only work there. This project is read anywhere.
FOREIGN: Final = re.compile(r"(?<![\w.$}/-])/(work|home/\w+|root|Users)/|https?://[\w.:-]+/(simple|pypi)\b")
CLOCKS: Final = re.compile(r"\b(monotonic|perf_counter|process_time)(_ns)?\(|\btime\.time(_ns)?\(")
TEXT: Final = {".py", ".sql", ".md", ".toml", ".yml", ".yaml", ".ini", ".mako", ".cfg", ""}


def tracked() -> list[Path]:
    """Every file of the project, relative to its root: what Git knows, and what is new and not ignored."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return [Path(name) for name in listed if name and (ROOT / name).is_file()]


FILES: Final = tracked()
PYTHON: Final = [path for path in FILES if path.suffix == ".py"]
PROSE: Final = [path for path in FILES if path.suffix in TEXT and not path.name.endswith(".lock")]


def text_of(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """Every line of every text that the pattern finds, with its place."""
    return [
        f"{path}:{number}: {line.strip()}"
        for path in PROSE
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]


def test_the_files_are_found() -> None:
    assert {"worker/identifiers.py", "Makefile", "tests/unit/test_house.py"} <= {str(path) for path in FILES}


def test_modules_are_short() -> None:
    lengths = {str(path): len(text_of(path).splitlines()) for path in PYTHON}
    limits = {str(path): LONGEST_PACKAGE_FILE if path.name == "__init__.py" else LONGEST_MODULE for path in PYTHON}
    assert not {name: length for name, length in lengths.items() if length > limits[name]}


def test_names_say_what_things_are() -> None:
    assert not [str(path) for path in PYTHON if VAGUE & {part.removesuffix(".py") for part in path.parts}]


def test_no_assertion_depends_on_how_fast_the_machine_is() -> None:
    # A bound on time fails under load, and proves nothing elsewhere: a condition, a clock of its own, or a benchmark.
    timed = [
        f"{path}:{node.lineno}"
        for path in PYTHON
        if path.parts[0] == "tests" and CLOCKS.search(text_of(path))
        for node in ast.walk(ast.parse(text_of(path)))
        if isinstance(node, ast.Assert) and CLOCKS.search(ast.unparse(node))
    ]
    assert not timed


def test_modules_say_what_they_are_for() -> None:
    silent = [
        str(path)
        for path in PYTHON
        if path.parts[0] != "tests" and text_of(path).strip() and not ast.get_docstring(ast.parse(text_of(path)))
    ]
    assert not silent


def test_nothing_is_left_unfinished() -> None:
    assert not lines_with(UNFINISHED)


def test_nothing_names_one_machine() -> None:
    assert not lines_with(FOREIGN)


@pytest.mark.parametrize(
    ("where", "caught"),
    [
        (("", "work", "main", "x"), True),
        (("see ", "root", ".pyenv"), True),
        (("https:", "", "mirror.local:8080", "simple", ""), True),
        (("docs", "work", "main"), False),
        (("https:", "", "docs.python.org", "3"), False),
        (("file:", "", "", "warehouse"), False),
    ],
)
def test_the_look_for_one_machine_sees(where: tuple[str, ...], caught: bool) -> None:
    assert bool(FOREIGN.search("/".join(where))) is caught


def test_scripts_are_executable() -> None:
    scripts = [path for path in FILES if (ROOT / path).read_bytes()[:2] == b"#!"]
    assert Path(".ci/run") in scripts
    assert not [str(path) for path in scripts if not (ROOT / path).stat().st_mode & 0o100]
