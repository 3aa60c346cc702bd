"""What a person sees: lines and tables that fit 80 columns, read well without colours, and are quiet when piped.

Responsible for: standard output (results) and standard error (warnings, progress), ages and durations as text.
Must not know: what is shown.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400


class Screen:
    """Standard output and standard error, each as wide as its terminal, or 80 columns where there is none."""

    def __init__(self) -> None:
        # No markup, emoji or highlighting: a dataset's name is shown as it is, brackets and colons included.
        self.out = Console(markup=False, emoji=False, highlight=False)
        self.err = Console(markup=False, emoji=False, highlight=False, stderr=True)

    @property
    def terminal(self) -> bool:
        """Whether a person watches: only then is there a progress bar."""
        return self.err.is_terminal and self.out.is_terminal

    def line(self, text: str = "", style: str = "") -> None:
        """One line of the result. It is never cut: whoever pipes it gets it whole."""
        self.out.print(Text(printable(text), style=style), soft_wrap=True)

    def heading(self, text: str) -> None:
        """A line that what follows belongs to."""
        self.line(text, "bold")

    def warn(self, text: str) -> None:
        """One line on standard error."""
        self.err.print(Text(printable(text), style="yellow"), soft_wrap=True)

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[int] = ()) -> None:
        """Columns without rules; those in ``numbers`` are set flush right. A long cell is folded, never cut."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for index, header in enumerate(headers):
            table.add_column(header, justify="right" if index in numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(_cell(cell))) for cell in row))
        if self.out.is_terminal:
            self.out.print(table)
            return
        with self.out.capture() as captured:
            self.out.print(table)
        for line in captured.get().splitlines():
            self.out.print(Text(line.rstrip()), soft_wrap=True)  # columns end in blanks, which nobody wants in a file

    @staticmethod
    def json(value: Any) -> None:
        """One JSON document, indented, UTF-8 as it is."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, default=str) + "\n")


def printable(text: str) -> str:
    """The text with control characters made visible: a name in the database must not drive somebody's terminal."""
    return "".join(
        f"\\x{ord(character):02x}" if unicodedata.category(character) == "Cc" else character for character in text
    )


def age(seconds: float) -> str:
    """A duration as people say it: ``45 s``, ``12 min``, ``3 h 20 min``, ``5 d``."""
    whole = max(0, int(seconds))
    if whole < 2 * _MINUTE:
        return f"{whole} s"
    if whole < 2 * _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < 2 * _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d"


def count(number: int, one: str, many: str = "") -> str:
    """``1 dataset``, ``1,200 datasets``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
