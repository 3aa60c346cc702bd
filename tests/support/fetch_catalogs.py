"""Fetches the catalogs that the tests start for real: ``python -m tests.support.fetch_catalogs [--nightly]``.

They come from Maven Central through ``mvn``, once, into a cache folder; what is there already is not fetched again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_POSTGRES_DRIVER: Final = "org.postgresql:postgresql:42.7.4:jar"

ARTIFACTS: Final = {
    "iceberg-open-api-1.10.1.jar": "org.apache.iceberg:iceberg-open-api:1.10.1:jar",
    # The server's jar holds a driver for SQLite only.
    "postgresql-42.7.4.jar": _POSTGRES_DRIVER,
}
"""What the reference server 1.10.1 is made of: the file's name, and its coordinates."""

NESSIE: Final = "nessie-quarkus-0.99.0-runner.jar"
"""One jar, for the nightly profile: 245 MB."""

_REFERENCE_1_11: Final = (
    "org.apache.iceberg:iceberg-open-api:1.11.0:test-fixtures",
    "org.apache.iceberg:iceberg-core:1.11.0",
    "org.apache.iceberg:iceberg-core:1.11.0:tests",
    "org.apache.iceberg:iceberg-api:1.11.0",
    "org.apache.iceberg:iceberg-aws:1.11.0",
    "org.apache.iceberg:iceberg-gcp:1.11.0",
    "org.apache.iceberg:iceberg-azure:1.11.0",
    "org.apache.hadoop:hadoop-client-api:3.4.3",
    "org.apache.hadoop:hadoop-client-runtime:3.4.3",
    "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.8",
    "org.eclipse.jetty.compression:jetty-compression-server:12.1.8",
    "org.eclipse.jetty.compression:jetty-compression-gzip:12.1.8",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.postgresql:postgresql:42.7.4",
    "org.slf4j:slf4j-simple:2.0.17",
)
"""From 1.11 on the server is published without what it needs: coordinates, a classifier last where there is one."""

_PATIENCE: Final = 600
"""Seconds for one download; the largest file has 245 MB."""


class FetchError(Exception):
    """Something was not brought; one line that says what, and why."""


def cache_folder() -> Path:
    """Where the files lie: ``REROOT_TEST_CACHE``, else ``.cache/catalogs`` in the checkout."""
    # The switch of a test run, not a setting of the program.
    chosen = os.environ.get("REROOT_TEST_CACHE")  # noqa: TID251 - see the line above
    return Path(chosen) if chosen else Path(__file__).parents[2] / ".cache" / "catalogs"


@dataclass(frozen=True, slots=True)
class Reference:
    """One version of the reference Iceberg REST server."""

    version: str

    def class_path(self) -> list[Path] | None:
        """Its class path; None where it has not been fetched."""
        if self.version == _OLDER:
            jars = [cache_folder() / name for name in ARTIFACTS]
            return jars if all(jar.is_file() for jar in jars) else None
        folder = self._folder()
        return [folder / "*"] if folder.is_dir() else None

    def fetch(self, mvn: str) -> None:
        """Bring it. Raises FetchError."""
        if self.version == _OLDER:
            for name, coordinates in ARTIFACTS.items():
                _copy(mvn, name, coordinates)
        else:
            _copy_all(mvn, _REFERENCE_1_11, self._folder())

    def _folder(self) -> Path:
        return cache_folder() / f"reference-{self.version}"


_OLDER: Final = "1.10.1"
REFERENCES: Final = {version: Reference(version) for version in (_OLDER, "1.11.0")}
"""The versions of the reference server that are tested."""


def nessie() -> Path | None:
    """The jar of Nessie; None where it has not been fetched."""
    jar = cache_folder() / NESSIE
    return jar if jar.is_file() else None


def fetch(*, nightly: bool = False) -> str | None:
    """Fetch what is missing; None when everything is there, else one line that says why it is not."""
    wanted = [reference for reference in REFERENCES.values() if reference.class_path() is None]
    also_nessie = nightly and nessie() is None
    if not wanted and not also_nessie:
        return None
    mvn = shutil.which("mvn")
    if mvn is None:
        return "mvn is not installed (Debian: apt-get install maven)"
    try:
        for reference in wanted:
            reference.fetch(mvn)
        if also_nessie:
            _copy(mvn, NESSIE, "org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner")
    except FetchError as problem:
        return str(problem)
    return None


def _copy(mvn: str, name: str, coordinates: str) -> None:
    if (cache_folder() / name).is_file():
        return
    half = _half()
    _run(mvn, ["dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={half}"], coordinates)
    for jar in half.iterdir():
        jar.replace(cache_folder() / jar.name)
    shutil.rmtree(half)


def _copy_all(mvn: str, coordinates: tuple[str, ...], folder: Path) -> None:
    """Everything that these need, with what that needs in turn."""
    half = _half()
    project = half / "pom.xml"
    project.write_text(_project(coordinates), encoding="utf-8")
    jars = half / "jars"
    command = ["-f", str(project), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    _run(mvn, command, coordinates[0])
    jars.replace(folder)
    shutil.rmtree(half)


def _half() -> Path:
    # A folder of its own first: an interrupted download must not look like a finished one.
    half = cache_folder() / "half"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    return half


def _run(mvn: str, goal: list[str], what: str) -> None:
    try:
        done = subprocess.run(
            [mvn, "-B", "-q", *goal], cwd=cache_folder(), capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise FetchError(f"mvn did not bring {what} within {_PATIENCE} seconds") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
        raise FetchError(f"mvn did not bring {what}: {said[0]}")


def _project(coordinates: tuple[str, ...]) -> str:
    """A Maven project that depends on these and is nothing itself."""
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>reroot</groupId><artifactId>catalogs</artifactId><version>1</version>"
        f"<dependencies>{''.join(map(_dependency, coordinates))}</dependencies></project>"
    )


def _dependency(coordinates: str) -> str:
    tags = zip(("groupId", "artifactId", "version", "classifier"), coordinates.split(":"), strict=False)
    return "<dependency>" + "".join(f"<{tag}>{value}</{tag}>" for tag, value in tags) + "</dependency>"


if __name__ == "__main__":
    problem = fetch(nightly="--nightly" in sys.argv[1:])
    if problem is not None:
        sys.exit(problem)
    print(f"the catalogs are in {cache_folder()}")  # noqa: T201 - a command
