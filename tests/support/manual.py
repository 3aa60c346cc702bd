"""The operator's manual, as programs read it: its tables, its statements, the commands that the documents name.

Responsible for: finding these in Markdown.
Must not know: what they should say.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
MANUAL: Final = ROOT / "docs" / "operations.md"

_FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_QUOTED: Final = re.compile(r"`([^`\n]+)`")


def documents() -> list[Path]:
    """Every document of the project."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def section(heading: str) -> str:
    """The manual's text from this heading to the next one of its level or above."""
    text = MANUAL.read_text(encoding="utf-8")
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,2}} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the manual has no section {heading!r}"
    return found[2]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row in ``text`` that begins with something in code, the header rows left out."""
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| `")
    ]


def fenced(text: str, language: str) -> list[str]:
    """The blocks of one language, in their order."""
    return [block for name, block in _FENCED.findall(text) if name == language]


def code(text: str) -> str:
    """All that a shell could be given: what is quoted within lines, and blocks that are neither drawings nor SQL."""
    blocks = [block for name, block in _FENCED.findall(text) if name not in {"mermaid", "sql"}]
    return "\n".join([*blocks, *_QUOTED.findall(_FENCED.sub("", text))])


def statements(block: str, dataset: str) -> list[str]:
    """A block of SQL as psql would send it, statement by statement, with ``-v dataset=…``."""
    text = re.sub(r"^--.*\n", "", block, flags=re.MULTILINE).replace(":'dataset'", f"'{dataset}'")
    return [statement for each in text.split(";") if (statement := each.strip())]
