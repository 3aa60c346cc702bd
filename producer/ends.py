"""How a command ends: the exit codes, which scripts rely on, and the one error that carries one.

Responsible for: names of the codes.
Must not know: what went wrong.
"""

from __future__ import annotations

from typing import Final

LEFT: Final = 1
"""Something failed, or something is left to do."""

USAGE: Final = 2
"""The command or the settings are not what they should be; nothing was done."""

OUT_OF_REACH: Final = 3
"""Postgres, the broker or the catalog cannot be reached."""

INTERRUPTED: Final = "interrupted; what was done stays done, and doing it again is safe"
"""The line after Ctrl-C."""

START_WORKER: Final = "celery -A worker.app worker -Q moves"
"""What helps where nobody listens."""


class CommandError(Exception):
    """A command's end in one line that says what is wrong and what to do."""

    def __init__(self, text: str, code: int = LEFT) -> None:
        super().__init__(text)
        self.code = code
