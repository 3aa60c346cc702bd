"""A question before an order that is hard to take back.

Responsible for: ``--yes``, the question, and the refusal where there is no terminal.
Must not know: what is asked about.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from producer.ends import LEFT, USAGE, CommandError

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask; needed without a terminal.")]


def ask(question: str, *, yes: bool) -> None:
    """Return after a yes. Raises CommandError: there is no terminal (exit 2), the answer is no (exit 1)."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"there is no terminal to ask ({question}): give --yes; nothing was done", USAGE)
    if not typer.confirm(question):
        raise CommandError("nothing was changed", LEFT)
