"""The whole stack on one machine: Postgres, Valkey, a folder of tables, worker processes, Flower.

Responsible for: starting and ending them in order, and the settings by which every program finds them.
Must not know: what the demo does with them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import psycopg

from demo.population import Lakehouse
from demo.processes import Process, ServiceError, uninterrupted, wait_until
from demo.services import Postgres, Valkey, free_port
from worker.controlplane import migrate

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).resolve().parents[1]
"""The checkout: programs run from here, as a person at a terminal would run them."""

PROGRAM: Final = Path(sys.executable).with_name("reroot")
"""The console script, in the environment that this runs in."""

GRACE_SECONDS: Final = 5
"""In production a quarter of an hour; nobody wants to watch that."""

FLOWER_COLUMNS: Final = "args,state,result,exception,received,runtime,worker"
"""What its list of tasks shows: ``args`` is the dataset, ``result`` or ``exception`` the outcome."""

WORKER_SECONDS: Final = 60
"""How long a worker may take to be ready on a busy machine."""


class Stack:
    """Everything that runs, in one folder. A context manager: at its end nothing runs any more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tables = folder / "lakehouse"
        self.tables.mkdir(parents=True)
        self._open = ExitStack()
        self._workers: list[Process] = []
        self._beside: list[Process] = []

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            self._postgres = opening.enter_context(Postgres(self.folder / "postgres"))
            self._valkey = opening.enter_context(Valkey(self.folder / "valkey"))
            self.control_plane_url = self._postgres.create_database("control_plane")
            self.catalog_url = self._postgres.create_database("catalog")
            opening.callback(self._end_programs)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def lakehouse(self) -> Lakehouse:
        """Where tables live, as pyiceberg is told."""
        return Lakehouse(_with_driver(self.catalog_url), f"file://{self.tables}")

    @property
    def settings(self) -> dict[str, str]:
        """Every setting that differs from its default."""
        return {
            "REROOT_DATABASE_URL": self.control_plane_url,
            "REROOT_BROKER_URL": self._valkey.url(),
            "REROOT_CATALOG_TYPE": "sql",
            "REROOT_CATALOG_URI": _with_driver(self.catalog_url),
            "REROOT_WAREHOUSE_TEMPLATE": "w_{workspace_hex}",
            "REROOT_WAREHOUSE_LOCATION": f"file://{self.tables}",
            "REROOT_GRACE_SECONDS": str(GRACE_SECONDS),
            "REROOT_LOG_FORMAT": "console",
        }

    def migrate(self) -> None:
        """The given tables, then Reroot's migrations."""
        migrate.upgrade(self.control_plane_url, with_baseline=True)

    def start_workers(self, number: int, *, processes: int) -> None:
        """Start Celery workers on the queue ``moves`` and wait until each says that it is alive."""
        for index in range(number):
            name = f"mover{index + 1}"
            command = [sys.executable, "-m", "celery", "-A", "worker.app", "worker", "-Q", "moves"]
            command += ["-c", str(processes), "-n", f"{name}@%h"]
            self._workers.append(self._run_beside(name, command))
        wait_until(self._workers_ready, seconds=WORKER_SECONDS, what="the workers are ready")

    def start_flower(self) -> str:
        """Start Flower on the same broker and return its address."""
        port = free_port()
        command = [sys.executable, "-m", "celery", "-A", "worker.app", "flower"]
        command += ["--address=127.0.0.1", f"--port={port}"]
        # Without a password its API answers nobody; here it listens on loopback alone.
        more = {"FLOWER_UNAUTHENTICATED_API": "true", "FLOWER_TASKS_COLUMNS": FLOWER_COLUMNS}
        process = self._run_beside("flower", command, more)
        wait_until(
            lambda: "Visit me at" in process.tail() or not process.alive(),
            seconds=WORKER_SECONDS,
            what="Flower is ready",
        )
        if not process.alive():
            raise ServiceError(f"Flower ended while it started:\n{process.tail()}")
        return f"http://127.0.0.1:{port}"

    def reroot(self, *words: str) -> int:
        """Run ``reroot`` as a person would, on this terminal; returns its exit code."""
        # A process group of its own: Ctrl-C reaches the demo alone, which then ends this as well.
        done = subprocess.run([str(PROGRAM), *words], check=False, cwd=ROOT, env=self._environment(), process_group=0)
        return done.returncode

    def unfinished(self) -> int:
        """Moves that are neither done nor parked."""
        with psycopg.connect(self.control_plane_url) as connection:
            row = connection.execute(
                "SELECT count(*) FROM reroot.moves WHERE state NOT IN ('done', 'parked')"
            ).fetchone()
        return int(row[0]) if row else 0

    def _workers_ready(self) -> bool:
        for process in self._workers:
            if not process.alive():
                raise ServiceError(f"a worker ended while it started:\n{process.tail()}")
        with psycopg.connect(self.control_plane_url) as connection:
            row = connection.execute("SELECT count(*) FROM reroot.workers WHERE 'moves' = ANY (queues)").fetchone()
        return row is not None and int(row[0]) >= len(self._workers)

    def _run_beside(self, name: str, command: list[str], more: Mapping[str, str] | None = None) -> Process:
        with uninterrupted():
            process = Process(
                command,
                log=self.folder / f"{name}.log",
                environment={**self._environment(), **(more or {})},
                folder=ROOT,
            )
            self._beside.append(process)
        return process

    def _end_programs(self) -> None:
        """Ask all of them first, so that they end at the same time; only then do the servers go."""
        for process in self._beside:
            process.send(signal.SIGTERM)
        for process in self._beside:
            process.stop()

    def _environment(self) -> dict[str, str]:
        """The caller's, without what would steer Reroot or Postgres, and with this stack's settings."""
        # Handed on to child processes as it is; nothing is read from it.
        inherited = os.environ.items()  # noqa: TID251 - see the line above
        plain = {name: value for name, value in inherited if not name.startswith(("REROOT_", "PG", "CELERY", "FLOWER"))}
        return {**plain, "PYTHONUTF8": "1", **self.settings}


def _with_driver(url: str) -> str:
    """The URL as SQLAlchemy reads it."""
    return url.replace("postgresql:", "postgresql+psycopg:", 1)
