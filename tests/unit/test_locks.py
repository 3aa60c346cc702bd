"""The locks hold what ``pyproject.toml`` asks for, and nothing else: one that was not made again is seen here."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[2]
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: Final = {"requirements.lock": "", "requirements-dev.lock": "dev"}
"""Each lock, and the extra that it is made with."""
_PINNED: Final = re.compile(r"^([\w.-]+)==([\w.!+]+)(?: *; *(.+?))?(?: \\)?$", re.MULTILINE)


def pinned(text: str) -> dict[str, str]:
    """The versions by name; what is pinned for other systems alone is left out."""
    return {
        canonicalize_name(name): version
        for name, version, marker in _PINNED.findall(text)
        if not marker or (Requirement(f"{name}; {marker}").marker or pytest.fail(marker)).evaluate()
    }


def direct(extra: str) -> list[Requirement]:
    """What the project itself asks for."""
    asked = [Requirement(line) for line in PROJECT["dependencies"]]
    waiting = [extra] if extra else []
    while waiting:
        for line in PROJECT["optional-dependencies"][waiting.pop()]:
            requirement = Requirement(line)
            if requirement.name == PROJECT["name"]:
                waiting += requirement.extras
            else:
                asked.append(requirement)
    return asked


def needed(asked: list[Requirement]) -> set[str]:
    """These and whatever they need in turn, as the installed packages say."""
    found: set[tuple[str, str]] = set()
    waiting = list(asked)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in found:
                continue
            found.add((name, extra))
            below = map(Requirement, distribution(name).requires or [])
            waiting += [each for each in below if not each.marker or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def complaints(text: str, asked: list[Requirement]) -> list[str]:
    """What the lock and the project do not agree on."""
    locked, wanted = pinned(text), needed(asked)
    refused = [
        f"{each} is asked for, and {locked.get(canonicalize_name(each.name), 'none')} is locked"
        for each in asked
        if not each.specifier.contains(locked.get(canonicalize_name(each.name), "0"))
    ]
    return [
        *refused,
        *(f"{name} is needed and not locked" for name in sorted(wanted - locked.keys())),
        *(f"{name} is locked, and nothing asks for it" for name in sorted(locked.keys() - wanted)),
    ]


def lock(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "extra"), EXTRAS.items())
def test_a_lock_holds_what_the_project_asks_for(name: str, extra: str) -> None:
    assert complaints(lock(name), direct(extra)) == []


def test_both_locks_hold_the_same_versions() -> None:
    run, dev = ({pin[:2] for pin in _PINNED.findall(lock(name))} for name in EXTRAS)
    assert run <= dev


@pytest.mark.parametrize(
    ("text", "asked", "complaint"),
    [
        ("packaging==26.0", ["packaging>=99"], "packaging>=99 is asked for, and 26.0 is locked"),
        ("", ["packaging"], "packaging is needed and not locked"),
        ("packaging==26.0\nwheel==0.45", ["packaging"], "wheel is locked, and nothing asks for it"),
        ("", ["redis>=6"], "redis>=6 is asked for, and none is locked"),
    ],
)
def test_a_stale_lock_is_seen(text: str, asked: list[str], complaint: str) -> None:
    assert complaint in complaints(text, [Requirement(line) for line in asked])
