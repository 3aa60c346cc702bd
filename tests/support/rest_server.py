"""The reference Iceberg REST server, a real one, in a process of its own.

Its catalog is in a database of Postgres or SQLite, its warehouse a local folder. It listens on all interfaces: it has
no setting for that, and lives as long as a test run.
"""

from __future__ import annotations

import os
import shutil
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from demo.processes import Process, ServiceError, wait_until
from demo.services import free_port
from tests.support.fetch_catalogs import REFERENCES
from tests.support.left_out import leave_out
from worker.lakehouse.connection import CatalogConnection, CatalogType

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

_CLIENTS: Final = 16
"""Connections to its database; with the default of two, races are not races."""
_START: Final = 60.0
"""Seconds; a busy machine needs a few."""


class RestServer:
    """One server: ``with RestServer(folder, database_url) as server``; the database is Postgres or ``sqlite:///…``."""

    def __init__(self, folder: Path, database_url: str, *, version: str = "1.10.1") -> None:
        self.warehouse = folder / "warehouse"
        self._version = version
        self._log = folder / "server.log"
        self._database = urlsplit(database_url)
        self._port = 0
        self._process: Process | None = None

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    def connection(self, **properties: str) -> CatalogConnection:
        """How Reroot reaches it."""
        return CatalogConnection(
            type=CatalogType.REST,
            uri=SecretStr(self.uri),
            properties={name: SecretStr(value) for name, value in properties.items()},
        )

    @staticmethod
    def needed(version: str) -> tuple[str, list[Path]]:
        """What it takes: the path of Java, and the class path; the test is left out where one is missing."""
        java = shutil.which("java")
        jars = REFERENCES[version].class_path()
        if java is None or jars is None:
            leave_out(f"no reference Iceberg REST server {version} here (it needs java and mvn: make catalogs)")
        return java, jars

    def start(self) -> Self:
        """Start it and wait until it answers."""
        java, jars = self.needed(self._version)
        self.warehouse.mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        classpath = os.pathsep.join(str(jar) for jar in jars)
        # Its log holds a stack trace for each refusal, at every level but "off".
        command = [java, "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", classpath]
        self._process = Process(
            [*command, "org.apache.iceberg.rest.RESTCatalogServer"], log=self._log, environment=self._environment()
        )
        wait_until(self._answers, seconds=_START, what="the reference REST server answers")
        return self

    def stop(self) -> None:
        """End it; its folder and its database stay."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _environment(self) -> dict[str, str]:
        database = self._database
        jdbc = f"jdbc:postgresql://{database.hostname}:{database.port}{database.path}"
        if database.scheme == "sqlite":
            jdbc = f"jdbc:sqlite:{database.path}"
        return {
            "PATH": os.defpath,
            "CATALOG_REST_PORT": str(self._port),
            "CATALOG_URI": jdbc,
            "CATALOG_JDBC_USER": database.username or "nobody",
            "CATALOG_JDBC_PASSWORD": database.password or "",
            "CATALOG_JDBC_SCHEMA__VERSION": "V1",
            "CATALOG_JDBC_STRICT__MODE": "true",
            "CATALOG_CATALOG_NAME": "reference",
            "CATALOG_CLIENTS": str(_CLIENTS),
            "CATALOG_WAREHOUSE": f"file://{self.warehouse}",
        }

    def _answers(self) -> bool:
        if self._process is not None and not self._process.alive():
            raise ServiceError(f"the reference REST server ended:\n{self._process.tail()}")
        connection = HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/v1/config")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
