"""``reroot``: the producer's and the operator's command line.

Responsible for: the list of commands, the exit codes, and that an error is one line.
Must not know: what a command does.

Exit codes: 0 done · 1 something failed or is left · 2 usage · 3 Postgres, the broker or the catalog is out of reach.
"""

from __future__ import annotations

import sys
import traceback
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Final

import typer

from producer import (
    cli_cancel,
    cli_check,
    cli_config,
    cli_database,
    cli_doctor,
    cli_move,
    cli_parked,
    cli_plan,
    cli_resolve,
    cli_retry,
    cli_revert,
    cli_show,
    cli_status,
    cli_warehouse,
    examples,
)
from producer.ends import INTERRUPTED, LEFT, OUT_OF_REACH, USAGE, CommandError
from producer.screen import printable
from worker.controlplane.connection import (
    AddressRefusedError,
    ControlPlaneAwayError,
    ControlPlaneError,
    RowsBusyError,
)
from worker.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="reroot",
    help="Gives Iceberg tables their right place, without copying a byte.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_INTERRUPTED: Final = 130
"""What typer makes of a KeyboardInterrupt, without a word. No command ends with it."""

Debug = Annotated[bool, typer.Option("--debug", help="Show where an error came from.")]


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"reroot {version('reroot')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
]


@app.callback()
def _options(*, debug: Debug = False, shown: Version = False) -> None:
    """Gives Iceberg tables their right place, without copying a byte."""


for _name, _command in (
    ("plan", cli_plan.plan),
    ("move", cli_move.move),
    ("status", cli_status.status),
    ("show", cli_show.show),
    ("parked", cli_parked.parked),
    ("retry", cli_retry.retry),
    ("cancel", cli_cancel.cancel),
    ("revert", cli_revert.revert),
    ("resolve", cli_resolve.resolve),
    ("warehouse", cli_warehouse.warehouse),
    ("check", cli_check.check),
    ("config", cli_config.config),
    ("doctor", cli_doctor.doctor),
):
    app.command(_name, epilog=examples.of(_name))(_command)
app.add_typer(cli_database.app, name="db")


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit code. ``--debug`` may stand anywhere."""
    debug = "--debug" in arguments
    try:
        return _ended([each for each in arguments if each != "--debug"])
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the one place where every error becomes a line
        if debug:
            traceback.print_exception(error)
        lines, code = explained(error)
        for line in lines:
            sys.stderr.write(f"reroot: {printable(line)}\n")
        return code


def _ended(arguments: list[str]) -> int:
    ended = app(arguments, prog_name="reroot", standalone_mode=False)
    if ended == _INTERRUPTED:
        raise KeyboardInterrupt
    return ended if isinstance(ended, int) else 0


def explained(error: BaseException) -> tuple[list[str], int]:
    """An error as the lines that a person reads (one, but for settings: one each) and its exit code."""
    match error:
        case CommandError():
            return [str(error)], error.code
        case SettingsError():
            return list(error.complaints), USAGE
        case AddressRefusedError():
            return [str(error)], USAGE
        case typer.TyperException():
            says = error.format_message()
            return [f"{says} ({_help_for(error)})"] if says else [], USAGE  # without arguments the help was shown
        case ControlPlaneAwayError():
            return [f"Postgres cannot be reached: {error} (REROOT_DATABASE_URL)"], OUT_OF_REACH
        case RowsBusyError():
            return [f"another transaction holds the rows: {error}; try again"], LEFT
        case ControlPlaneError():
            return [f"Postgres refused: {error} (reroot db check says whether the schema is current)"], LEFT
        case KeyboardInterrupt() | typer.Abort():
            return [INTERRUPTED], LEFT
        case _:
            return [f"unexpected {type(error).__name__}: {_first_line(error)} (--debug shows where)"], LEFT


def _help_for(error: typer.TyperException) -> str:
    """The help of the command that was typed."""
    context: typer.Context | None = getattr(error, "ctx", None)
    return f"{context.command_path if context else 'reroot'} --help"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no text"])[0]
