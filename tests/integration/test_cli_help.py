"""What the command line says about itself: version, completion, help with examples; and its first half second."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
from typer.main import get_command

from producer.commands import app
from producer.examples import EXAMPLES
from tests.support.operator import NOWHERE, Operator

if TYPE_CHECKING:
    from pathlib import Path

OPERATOR: Final = Operator(NOWHERE)


def commands() -> dict[str, Any]:
    """Every command by its full name."""
    found: dict[str, Any] = {}
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]  # it is a group
        inner = getattr(command, "commands", {})
        found |= {f"{name} {each}": inner[each] for each in inner} or {name: command}
    return found


COMMANDS: Final = commands()


def test_the_version_is_shown() -> None:
    ended = OPERATOR.types("--version")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("reroot 0.")


def test_every_command_has_examples() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_ends_with_examples_that_the_command_understands(name: str) -> None:
    ended = OPERATOR.types(*name.split(), "--help")
    assert (ended.code, ended.err) == (0, "")
    assert "Examples:" in ended.out
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    for example in EXAMPLES[name]:
        assert example in ended.out
        words = shlex.split(example)
        assert words[: 1 + len(name.split())] == ["reroot", *name.split()]
        assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["mvoe"], "(reroot --help)"),
        (["move", "--lmit", "3"], "(reroot move --help)"),
        (["retry", "--code", "nonsense"], "(reroot retry --help)"),
        (["show"], "(reroot show --help)"),
        (["db", "chekc"], "(reroot db --help)"),
        (["db", "upgrade", "now"], "(reroot db upgrade --help)"),
    ],
)
def test_a_usage_error_names_the_help_of_the_command_that_was_typed(arguments: list[str], named: str) -> None:
    ended = OPERATOR.types(*arguments)
    assert ended.code == 2
    assert ended.one_line.endswith(named)


@pytest.mark.parametrize("arguments", [[], ["db"]])
def test_without_arguments_the_help_is_all_there_is(arguments: list[str]) -> None:
    ended = OPERATOR.types(*arguments)
    assert (ended.code, ended.err) == (2, "")
    assert "Usage: reroot" in ended.out


def test_a_shell_can_complete_it() -> None:
    shell = Operator(
        NOWHERE, _REROOT_COMPLETE="complete_bash", COMP_WORDS="reroot retry --c", COMP_CWORD="2", _TYPER_COMPLETE="1"
    )
    ended = shell.runs()
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.split() == ["--code", "--catalog"]


# The import of everything else takes half a second. Nothing may be left to chance: the key is pressed in it.
_INTERRUPTED_WHILE_IT_IMPORTS: Final = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class PressesTheKey:
    def find_spec(self, name, path=None, target=None):
        if name == "worker.settings":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, PressesTheKey())
from producer.cli import main
main()
"""


def test_ctrl_c_while_the_program_is_imported_is_one_line() -> None:
    ended = _run(_INTERRUPTED_WHILE_IT_IMPORTS)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "reroot: interrupted; what was done stays done, and doing it again is safe\n"


@pytest.mark.parametrize("shape", ["worker.py", "worker/__init__.py", "worker/tasks.py"])
def test_another_package_called_worker_that_stands_in_front_is_named(tmp_path: Path, shape: str) -> None:
    (tmp_path / shape).parent.mkdir(exist_ok=True)
    (tmp_path / shape).touch()
    ended = _run(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from producer.cli import main; main()")
    if shape == "worker/tasks.py":
        assert ended.returncode == 0  # without __init__.py it stands behind, wherever it is
        return
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"reroot: the package worker in {tmp_path}/worker")
    assert ended.stderr.endswith("is not Reroot's and is found first: install Reroot into an environment of its own\n")


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, "--version"],
        check=False,
        env=dict(OPERATOR.environment()),
        capture_output=True,
        text=True,
        timeout=60,
    )
