"""Fetches the catalogs that the tests start for real.

``python -m tests.support.fetch_catalogs [--nightly] [--if-possible]``. They come from Maven Central through ``mvn``,
once, into a cache folder; what is there already is not fetched again. ``--if-possible`` is for a run of the tests: it
waits a few minutes at most and never fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

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

PATIENCE: Final = 1200.0
"""Seconds for everything: 300 MB, and 245 MB for Nessie."""
SHORT_PATIENCE: Final = 240.0
"""The same before a run of the tests, which goes on without."""


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

    def fetch(self, maven: Maven) -> None:
        """Bring it. Raises FetchError."""
        if self.version == _OLDER:
            for name, coordinates in ARTIFACTS.items():
                maven.copy(name, coordinates)
        else:
            maven.copy_all(_REFERENCE_1_11, self._folder())

    def _folder(self) -> Path:
        return cache_folder() / f"reference-{self.version}"


_OLDER: Final = "1.10.1"
REFERENCES: Final = {version: Reference(version) for version in (_OLDER, "1.11.0")}
"""The versions of the reference server that are tested."""


def nessie() -> Path | None:
    """The jar of Nessie; None where it has not been fetched."""
    jar = cache_folder() / NESSIE
    return jar if jar.is_file() else None


def missing(*, nightly: bool) -> bool:
    """Whether something is not there yet."""
    return any(each.class_path() is None for each in REFERENCES.values()) or (nightly and nessie() is None)


def fetch(*, nightly: bool = False, patience: float = PATIENCE) -> str | None:
    """Fetch what is missing; None when everything is there, else one line that says why it is not."""
    if not missing(nightly=nightly):
        return None
    mvn = shutil.which("mvn")
    if mvn is None:
        return "mvn is not installed (Debian: apt-get install maven)"
    maven = Maven(mvn, time.monotonic() + patience)
    try:
        for reference in REFERENCES.values():
            if reference.class_path() is None:
                reference.fetch(maven)
        if nightly and nessie() is None:
            maven.copy(NESSIE, "org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner")
    except FetchError as problem:
        return str(problem)
    return None


@dataclass(frozen=True, slots=True)
class Maven:
    """``mvn``, which must be done by ``deadline``. Its methods raise FetchError."""

    program: str
    deadline: float

    def copy(self, name: str, coordinates: str) -> None:
        """One jar, into the cache folder, unless it is there."""
        if (cache_folder() / name).is_file():
            return
        with _half() as half:
            self._run(["dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={half}"], coordinates)
            (half / name).replace(cache_folder() / name)

    def copy_all(self, coordinates: tuple[str, ...], folder: Path) -> None:
        """Everything that these need, with what that needs in turn."""
        with _half() as half:
            project, jars = half / "pom.xml", half / "jars"
            project.write_text(_project(coordinates), encoding="utf-8")
            command = ["-f", str(project), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
            self._run(command, coordinates[0])
            jars.replace(folder)

    def _run(self, goal: list[str], what: str) -> None:
        left = self.deadline - time.monotonic()
        try:
            done = subprocess.run(
                [self.program, "-B", "-q", *goal],
                cwd=cache_folder(), capture_output=True, text=True, timeout=max(left, 0), check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise FetchError(f"mvn did not bring {what} in time") from None
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
            raise FetchError(f"mvn did not bring {what}: {said[0]}")


@contextmanager
def _half() -> Iterator[Path]:
    """A folder of its own first: an interrupted download must not look like a finished one."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="half-", dir=cache_folder(), ignore_cleanup_errors=True) as folder:
        yield Path(folder)


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


def main(arguments: list[str]) -> int:
    """Fetch, and say what was not brought. Exit code 1 then, 0 with ``--if-possible``."""
    if_possible, nightly = "--if-possible" in arguments, "--nightly" in arguments
    patience = SHORT_PATIENCE if if_possible and not nightly else PATIENCE
    if missing(nightly=nightly) and shutil.which("mvn") is not None:
        sys.stderr.write("Fetching the catalogs that the tests start (once, some minutes)\n")
    problem = fetch(nightly=nightly, patience=patience)
    if problem is not None:
        sys.stderr.write(f"{problem}\n")
    elif not if_possible:
        sys.stdout.write(f"the catalogs are in {cache_folder()}\n")
    return 0 if problem is None or if_possible else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
