"""Fetches the reference Iceberg REST server into a cache folder: ``python -m tests.support.fetch_catalogs``.

It comes from Maven Central through ``mvn``, once; what is there already is not fetched again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ARTIFACTS: Final = {
    "iceberg-open-api-1.10.1.jar": "org.apache.iceberg:iceberg-open-api:1.10.1:jar",
    # The server's jar holds a driver for SQLite only.
    "postgresql-42.7.4.jar": "org.postgresql:postgresql:42.7.4:jar",
}
"""What the reference server is made of: the file's name, and its coordinates."""

_PATIENCE: Final = 600
"""Seconds for one download; the larger file has 212 MB."""


def cache_folder() -> Path:
    """Where the files lie: ``REROOT_TEST_CACHE``, else ``.cache/catalogs`` in the checkout."""
    # The switch of a test run, not a setting of the program.
    chosen = os.environ.get("REROOT_TEST_CACHE")  # noqa: TID251 - see the line above
    return Path(chosen) if chosen else Path(__file__).parents[2] / ".cache" / "catalogs"


def reference_server() -> list[Path] | None:
    """The jars of the reference server, in the order of the class path; None where they have not been fetched."""
    jars = [cache_folder() / name for name in ARTIFACTS]
    return jars if all(jar.is_file() for jar in jars) else None


def fetch() -> str | None:
    """Fetch what is missing; None when everything is there, else one line that says why it is not."""
    if reference_server() is not None:
        return None
    mvn = shutil.which("mvn")
    if mvn is None:
        return "mvn is not installed (Debian: apt-get install maven)"
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for name, coordinates in ARTIFACTS.items():
        if not (folder / name).is_file():
            problem = _copy(mvn, coordinates, folder)
            if problem is not None:
                return problem
    return None


def _copy(mvn: str, coordinates: str, folder: Path) -> str | None:
    # Into a folder of its own first: an interrupted download must not look like a finished one.
    half = folder / "half"
    command = [mvn, "-B", "-q", "dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={half}"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"mvn did not bring {coordinates} within {_PATIENCE} seconds"
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
        return f"mvn did not bring {coordinates}: {said[0]}"
    for jar in half.iterdir():
        jar.replace(folder / jar.name)
    shutil.rmtree(half)
    return None


if __name__ == "__main__":
    problem = fetch()
    if problem is not None:
        sys.exit(problem)
    print(f"the reference catalog is in {cache_folder()}")  # noqa: T201 - a command
