"""What a benchmark runs on: Postgres, Valkey, the reference REST server behind the proxy, real workers.

Responsible for: starting and ending them, and the settings by which a worker finds them.
Must not know: what is measured.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from benchmarks.lake import Lake
from benchmarks.measuring import children, command_of, cpu_seconds, family_seconds
from benchmarks.population import Population
from demo.processes import Process, ServiceError, wait_until
from demo.services import Postgres, Valkey
from tests.support.fetch_catalogs import fetch
from tests.support.rest_server import RestServer
from worker.controlplane import migrate
from worker.identifiers import LEGACY_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[1]
READY_SECONDS: Final = 60
WAREHOUSE: Final = "lake"


def plain_environment() -> dict[str, str]:
    """This process's environment without what would steer Reroot, Celery or Postgres."""
    # Handed on to child processes as it is; nothing is read from it.
    inherited = os.environ.items()  # noqa: TID251 - see the line above
    return {name: value for name, value in inherited if not name.startswith(("REROOT_", "PG", "CELERY"))}


class ProxyProcess:
    """``benchmarks.proxy`` in a process of its own."""

    def __init__(self, upstream: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.proxy", str(upstream)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        self.port = int(self._line())

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def delay(self, seconds: float) -> None:
        """Let every request from now on wait so long."""
        self._ask(f"delay {seconds}")

    def counts(self) -> Counter[str]:
        """Requests since the last reset, by kind."""
        return Counter(json.loads(self._ask("count")))

    def reset(self) -> None:
        """Count from nought."""
        self._ask("reset")

    def close(self) -> None:
        """End it."""
        with self._process:  # closes both pipes and waits
            pass

    def _ask(self, words: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(words + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ServiceError("the proxy has ended")
        return line


class Worker:
    """One Celery worker, as an operator starts it."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def main(self) -> int:
        """The main process."""
        return self._process.pid

    def pool(self) -> list[int]:
        """Its child processes that do the jobs."""
        return [pid for pid in children(self.main) if "worker.sweeper" not in command_of(pid)]

    def sweeper(self) -> list[int]:
        """Its sweeper."""
        return [pid for pid in children(self.main) if "worker.sweeper" in command_of(pid)]

    def cpu(self) -> dict[str, float]:
        """Seconds of processor time so far: children (replaced ones too), main process, sweeper."""
        main, sweeper = cpu_seconds(self.main), sum(map(cpu_seconds, self.sweeper()))
        return {"children": family_seconds(self.main) - main - sweeper, "main": main, "sweeper": sweeper}


class Services:
    """Postgres and Valkey in a temporary folder. A context manager: at its end nothing runs and nothing is left."""

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self.folder = Path(tempfile.mkdtemp(prefix="reroot-bench-"))
            opening.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.postgres = opening.enter_context(Postgres(self.folder / "postgres"))
            self.valkey = opening.enter_context(Valkey(self.folder / "valkey"))
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


class Stack:
    """Beside the services: a control plane, the reference server behind the proxy, its tables."""

    def __init__(self, services: Services) -> None:
        self.folder = services.folder
        self._services = services
        self._started = 0

    def __enter__(self) -> Self:
        problem = fetch()
        if problem is not None:
            raise ServiceError(f"no reference Iceberg REST server: {problem}")
        postgres = self._services.postgres
        self.control_plane_url = postgres.create_database("control_plane")
        self.catalog_url = postgres.create_database("catalog")
        migrate.upgrade(self.control_plane_url, with_baseline=True)
        with ExitStack() as opening:
            server = opening.enter_context(RestServer(self.folder, self.catalog_url))
            self.server_port = int(server.uri.rpartition(":")[2])
            _create_namespace(self.server_port, LEGACY_NAMESPACE)
            self.proxy = ProxyProcess(self.server_port)
            opening.callback(self.proxy.close)
            self.lake = Lake(server.warehouse, self.catalog_url)
            self.population = Population(self.control_plane_url)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def settings(self) -> dict[str, str]:
        """The settings that differ from their defaults."""
        return {
            "REROOT_DATABASE_URL": self.control_plane_url,
            "REROOT_BROKER_URL": self._services.valkey.url(),
            "REROOT_CATALOG_TYPE": "rest",
            "REROOT_CATALOG_URI": f"http://127.0.0.1:{self.proxy.port}",
            "REROOT_WAREHOUSE": WAREHOUSE,
            "REROOT_GRACE_SECONDS": "1",
            # A flip makes nobody sweep: with the usual 15 s a run of 15 s would wait for its retirements.
            "REROOT_SWEEP_INTERVAL_SECONDS": "1",
        }

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a program of Reroot is started with."""
        return {**plain_environment(), **self.settings, **(more or {})}

    @contextmanager
    def worker(
        self, processes: int, *, app: str = "worker.app", more: Mapping[str, str] | None = None
    ) -> Iterator[Worker]:
        """A worker on the queue ``moves`` that is ready."""
        self._started += 1
        command = [sys.executable, "-m", "celery", "-A", app, "worker", "-Q", "moves", "-c", str(processes)]
        command += ["-n", f"mover{self._started}@bench"]
        log = self.folder / f"worker{self._started}.log"
        process = Process(command, log=log, environment=self.environment(more), folder=ROOT)
        try:
            wait_until(
                lambda: re.search(r"\bready\.", log.read_text(encoding="utf-8")) is not None or not process.alive(),
                seconds=READY_SECONDS,
                what="a worker is ready",
            )
            if not process.alive():
                raise ServiceError(f"a worker ended while it started:\n{process.tail()}")
            yield Worker(process)
        finally:
            process.stop(with_signal=signal.SIGTERM, seconds=60)


def _create_namespace(port: int, name: str) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"namespace": [name], "properties": {}})
    connection.request("POST", "/v1/namespaces", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise ServiceError(f"the reference server made no namespace: {answer.read()[:200]!r}")
    connection.close()
