"""``reroot db``: the schema of the control plane.

Responsible for: the four commands and their lines.
Must not know: SQL, what a migration does.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from producer import examples
from producer.ends import LEFT, CommandError
from producer.question import Yes, ask
from worker.controlplane.connection import AddressRefusedError, ControlPlaneRefusedError
from worker.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

app = typer.Typer(
    help="The schema of the control plane: additive, and safe while other programs use it.", no_args_is_help=True
)

Baseline = Annotated[
    bool,
    typer.Option(
        "--with-baseline", help="Create the control plane's own tables first, in an empty database: demo, tests."
    ),
]


@app.command(epilog=examples.of("db upgrade"))
def upgrade(*, with_baseline: Baseline = False) -> None:
    """Bring the database to the schema that this version needs. Safe to run again, also after it was cut off."""
    with _refusals_in_their_own_words():
        migrate = _migrate()
        before = migrate.current(_url())
        migrate.upgrade(_url(), with_baseline=with_baseline, say=_say)
        after = migrate.head()
        typer.echo(f"at revision {after}" + (", as before" if before == after else f", before: {before or 'none'}"))


@app.command(epilog=examples.of("db current"))
def current() -> None:
    """Show the database's revision, and the one that this version needs."""
    with _refusals_in_their_own_words():
        migrate = _migrate()
        typer.echo(f"at revision {migrate.current(_url()) or 'none'}, this version needs {migrate.head()}")


@app.command(epilog=examples.of("db check"))
def check() -> None:
    """Exit 0 when the database is at this version's revision and whole: no index or constraint left invalid."""
    with _refusals_in_their_own_words():
        problems = _migrate().check(_url())
        for problem in problems:
            typer.echo(problem, err=True)
        if problems:
            raise typer.Exit(LEFT)
        typer.echo(f"whole, at revision {_migrate().head()}")


@app.command(epilog=examples.of("db downgrade"))
def downgrade(*, yes: Yes = False) -> None:
    """Remove all of Reroot's and leave the rest. Refused while any dataset has an iceberg_namespace."""
    url = _url()
    ask("Remove schema reroot, with the ledger and the journal, and Reroot's columns?", yes=yes)
    with _refusals_in_their_own_words():
        _migrate().downgrade(url, say=_say)
        typer.echo("everything of Reroot's is removed")


def _migrate() -> ModuleType:
    # Late: Alembic and SQLAlchemy weigh more than all of the other commands together.
    from worker.controlplane import migrate  # noqa: PLC0415 - see the line above

    return migrate


def _url() -> str:
    """Past a pooler: a migration needs a session of its own."""
    return load_settings().direct_database()


def _say(line: str) -> None:
    typer.echo(line, err=True)


@contextmanager
def _refusals_in_their_own_words() -> Iterator[None]:
    """A migration that refuses says what to do; every other error is the same as for the other commands."""
    try:
        yield
    except AddressRefusedError:
        raise
    except ControlPlaneRefusedError as refusal:
        raise CommandError(str(refusal)) from refusal
