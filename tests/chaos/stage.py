"""What the disasters happen to: Postgres, the broker, the reference REST server behind the fault proxy, two workers.

Responsible for: starting and ending them, tables and datasets, and what a worker is told about all of it. The catalog's
database is a cluster of its own: what is restarted is the control plane's.
Must not know: which disasters there are.
"""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

import psycopg

from benchmarks.lake import Lake
from benchmarks.population import Population
from demo.services import Postgres, Valkey
from tests.chaos.proxy_process import ProxyProcess
from tests.support.rest_server import RestServer
from tests.support.worker_process import WorkerProcess
from worker.controlplane import migrate
from worker.controlplane.connection import ControlPlaneError
from worker.identifiers import LEGACY_NAMESPACE

if TYPE_CHECKING:
    from benchmarks.lake import Born

WAREHOUSE: Final = "lake"
WORKERS: Final = 2
PROCESSES: Final = 4
GRACE_SECONDS: Final = 4
VISIBILITY_SECONDS: Final = 30
"""After which the broker hands out again what a killed worker had taken."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One dataset that is to be moved."""

    dataset_id: str
    table_uuid: str
    old: str
    new: str


class Broker:
    """The broker, which can lose its file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._valkey = Valkey(folder)

    @property
    def url(self) -> str:
        """Its address."""
        return self._valkey.url()

    def start(self) -> Self:
        """Start it with whatever its file holds."""
        self._valkey.start()
        return self

    def kill(self, *, lose_file: bool) -> None:
        """Kill -9."""
        self._valkey.kill()
        if lose_file:
            shutil.rmtree(self._folder / "appendonlydir")

    def stop(self) -> None:
        """End it."""
        self._valkey.stop()


class Stage:
    """``with Stage(folder, strategy, seed) as stage``; the workers are started by hand, last."""

    def __init__(self, folder: Path, strategy: str, seed: int) -> None:
        self.folder = folder
        self._strategy = strategy
        self._seed = seed

    def __enter__(self) -> Self:
        RestServer.needed("1.10.1")  # before anything is made for it
        with ExitStack() as opening:
            self.postgres = opening.enter_context(Postgres(self.folder / "control-plane"))
            self._catalog_postgres = opening.enter_context(Postgres(self.folder / "catalog"))
            self.broker = Broker(self.folder / "broker").start()
            opening.callback(self.broker.stop)
            self.database = self.postgres.create_database("control_plane")
            self.catalog_database = self._catalog_postgres.create_database("catalog")
            migrate.upgrade(self.database, with_baseline=True)
            self.server = opening.enter_context(RestServer(self.folder / "server", self.catalog_database))
            _create_namespace(self.server.uri, LEGACY_NAMESPACE)
            self.proxy = opening.enter_context(ProxyProcess(self.folder, self.server.uri, self._seed))
            self.workers = [WorkerProcess(self.folder, self._settings(), concurrency=PROCESSES) for _ in range(WORKERS)]
            for worker in self.workers:
                opening.push(worker.__exit__)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def warehouse(self) -> Path:
        """The folder of all tables."""
        return self.server.warehouse

    def populate(self, count: int) -> list[Subject]:
        """Datasets with a table each, not queued yet."""
        lake = Lake(self.warehouse, self.catalog_database)
        self._population = Population(self.database)
        self._born = lake.bear(count)
        self._namespaces = self._population.settle(self._born)
        return [
            Subject(one.dataset_id, _uuid_of(one), str(one.identifier), f"{namespace}.{one.identifier.name}")
            for one, namespace in zip(self._born, self._namespaces, strict=True)
        ]

    def queue(self, first: int, last: int) -> bool:
        """Order these moves as the producer does; False when the control plane is away."""
        try:
            self._population.enqueue(self._born[first:last], self._namespaces[first:last])
        except (ControlPlaneError, psycopg.Error):
            return False
        return True

    def _settings(self) -> dict[str, str]:
        return {
            "REROOT_DATABASE_URL": self.database,
            "REROOT_BROKER_URL": self.broker.url,
            "REROOT_CATALOG_TYPE": "rest",
            "REROOT_CATALOG_URI": self.proxy.uri,
            "REROOT_WAREHOUSE": WAREHOUSE,
            "REROOT_STRATEGY": self._strategy,
            "REROOT_GRACE_SECONDS": str(GRACE_SECONDS),
            "REROOT_SWEEP_INTERVAL_SECONDS": "1",
            "REROOT_REPUBLISH_AFTER_SECONDS": "5",
            # Short ones: what runs into a limit is part of the chaos.
            "REROOT_CATALOG_TIMEOUT_SECONDS": "3",
            "REROOT_MOVE_DEADLINE_SECONDS": "10",
            "REROOT_SOFT_TIME_LIMIT_SECONDS": "15",
            "REROOT_TIME_LIMIT_SECONDS": "20",
            "REROOT_VISIBILITY_TIMEOUT_SECONDS": str(VISIBILITY_SECONDS),
        }


def _uuid_of(born: Born) -> str:
    document = json.loads(Path(born.metadata_location.removeprefix("file://")).read_text(encoding="utf-8"))
    return str(document["table-uuid"])


def _create_namespace(uri: str, name: str) -> None:
    connection = HTTPConnection(urlsplit(uri).netloc, timeout=30)
    body = json.dumps({"namespace": [name], "properties": {}})
    connection.request("POST", "/v1/namespaces", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()
