"""What a user sees when something is wrong: one line, the right exit code, no traceback."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from producer import cli_status, commands
from producer.ends import LEFT
from tests.support import ledger
from tests.support.operator import Operator
from tests.support.place import Place

if TYPE_CHECKING:
    from tests.support.controlplane import ControlPlaneFixture

NO_POSTGRES = "postgresql://app:hush-hush@127.0.0.1:1/nothing"
COMMANDS = [
    ["plan"],
    ["move", "--all"],
    ["status"],
    ["show", "00000000-0000-4000-8000-000000000000"],
    ["retry", "--code", "name_taken"],
    ["check"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_with_postgres_away_every_command_names_it_and_ends_with_3(arguments: list[str]) -> None:
    ended = Operator(NO_POSTGRES).types(*arguments)
    assert (ended.code, ended.out) == (3, "")
    assert ended.one_line.startswith("reroot: Postgres cannot be reached: ")
    assert "hush-hush" not in ended.err


def test_postgres_away_in_a_process_of_its_own() -> None:
    ended = Operator(NO_POSTGRES).runs("status")
    assert (ended.code, ended.out) == (3, "")
    assert "Postgres cannot be reached" in ended.one_line


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_a_misspelt_setting_is_one_line_and_exit_2(arguments: list[str]) -> None:
    ended = Operator(NO_POSTGRES, REROOT_DATABASE_ULR="x").types(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "REROOT_DATABASE_ULR" in ended.one_line
    assert "REROOT_DATABASE_URL" in ended.one_line


@pytest.mark.parametrize("rest", ["app:hush-hush%zz@h/db", "h/db?pasword=hush-hush", "h/db?hush-hush"])
@pytest.mark.parametrize("arguments", [["status"], ["status", "--debug"], ["db", "check"]])
def test_an_address_that_cannot_be_read_is_not_quoted(rest: str, arguments: list[str]) -> None:
    ended = Operator(f"postgresql://{rest}").types(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "percent-encode the password" in ended.err
    assert "hush-hush" not in ended.err


def test_without_a_database_in_the_settings_the_variable_is_named() -> None:
    operator = Operator(NO_POSTGRES)
    del operator.settings["REROOT_DATABASE_URL"]
    ended = operator.types("plan")
    assert ended.code == 2
    assert "REROOT_DATABASE_URL is not set" in ended.one_line


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_a_database_that_was_not_migrated_says_so(empty_database: str, arguments: list[str]) -> None:
    ended = Operator(empty_database).types(*arguments)
    assert (ended.code, ended.out) == (1, "")
    assert "reroot db check" in ended.one_line


def test_an_unknown_command_is_a_usage_error() -> None:
    ended = Operator(NO_POSTGRES).types("mvoe")
    assert ended.code == 2
    assert ended.one_line.startswith("reroot: ")


def test_help_is_no_error() -> None:
    for arguments in (["--help"], ["move", "--help"], ["db", "--help"]):
        ended = Operator(NO_POSTGRES).types(*arguments)
        assert (ended.code, ended.err) == (0, "")
        assert max(map(len, ended.out.splitlines())) <= 80


def test_debug_shows_where_an_error_came_from_and_nothing_else_does() -> None:
    assert "Traceback" not in Operator(NO_POSTGRES).types("status").err
    for arguments in (["--debug", "status"], ["status", "--debug"]):
        ended = Operator(NO_POSTGRES).types(*arguments)
        assert ended.code == 3
        assert "Traceback" in ended.err
        assert "hush-hush" not in ended.err


def test_a_defect_is_one_line_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("first\nsecond")

    monkeypatch.setattr(commands, "app", broken)
    ended = Operator(NO_POSTGRES).types("status")
    assert ended.code == LEFT
    assert ended.one_line == "reroot: unexpected ZeroDivisionError: first (--debug shows where)"


def test_an_interrupted_command_says_that_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_status, "load_settings", interrupted)
    ended = Operator(NO_POSTGRES).types("status")
    assert ended.code == LEFT
    assert ended.one_line == "reroot: interrupted; what was done stays done, and doing it again is safe"


def test_a_reader_that_stops_reading_is_no_error_of_ours(control_plane: ControlPlaneFixture, database: str) -> None:
    Place(control_plane).datasets(300)
    operator = Operator(database)
    command = [sys.executable, "-c", "from producer.cli import main; main()", "plan", "--json"]
    with subprocess.Popen(
        command, env=dict(operator.environment()), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate(timeout=60)
    assert err == b""
    assert process.returncode == 1


def test_config_shows_every_setting_and_no_secret() -> None:
    ended = Operator(NO_POSTGRES, REROOT_GRACE_SECONDS="60").types("config")
    assert (ended.code, ended.err) == (0, "")
    assert "hush-hush" not in ended.out
    assert "REROOT_GRACE_SECONDS = 60" in ended.out
    assert "from environment REROOT_GRACE_SECONDS" in ended.out


def test_the_schema_s_commands_are_there(database: str) -> None:
    assert Operator(database).types("db", "check").code == 0


def test_nothing_is_wider_than_80_columns(control_plane: ControlPlaneFixture, database: str, valkey: str) -> None:
    place = Place(control_plane)
    first, second, third = place.datasets(3)
    operator = Operator(database, valkey)
    before = operator.types("plan").out
    operator.types("move", "--all")
    ledger.flip(control_plane, first)
    ledger.park(control_plane, second)
    commands = (["status"], ["show", first], ["show", second], ["show", third], ["check"], ["retry", second])
    text = before + "".join(operator.types(*arguments).out for arguments in commands)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "\x1b" not in text
