"""PgBouncer in transaction mode, as many installations put it before Postgres.

Responsible for: its configuration, its start and its end.
Must not know: who connects through it.
"""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit, urlunsplit

import psycopg

from demo.accounts import private_folder, removed_with, unprivileged
from demo.processes import Process, ServiceError, wait_until
from demo.services import START_SECONDS, free_port
from tests.support.left_out import leave_out

if TYPE_CHECKING:
    from pathlib import Path

    from demo.services import Postgres

CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={upstream}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 40
max_client_conn = 300
server_login_retry = 1
"""


class PgBouncer:
    """A pooler before one Postgres. Each transaction may run on another server connection."""

    def __init__(self, folder: Path, upstream: Postgres) -> None:
        self._account = unprivileged()
        self._folder, temporary = private_folder(folder, self._account)
        if temporary:
            removed_with(self, self._folder)
        self._upstream = upstream
        self._process: Process | None = None
        self.port = free_port()

    def url(self, database: str = "postgres") -> str:
        """The address of a database, through the pooler."""
        there = urlsplit(self._upstream.url(database))
        return urlunsplit(there._replace(netloc=there.netloc.rpartition(":")[0] + f":{self.port}"))

    def start(self) -> Self:
        """Start it and wait until it lets through. Raises ServiceError."""
        there = urlsplit(self._upstream.url())
        # Where the password does not pass through a command line; the account that it runs under must read it.
        self._write("users", f'"{there.username}" "{there.password}"\n')
        settings = CONFIGURATION.format(upstream=self._upstream.port, port=self.port, folder=self._folder)
        process = Process(
            [binary(), self._write("pgbouncer.ini", settings)],
            log=self._folder / "pgbouncer.log",
            environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            stop_signal=signal.SIGINT,
            account=self._account,
        )
        self._process = process
        try:
            wait_until(
                lambda: self._answers() or not process.alive(), seconds=START_SECONDS, what="PgBouncer lets through"
            )
        finally:
            if not self._answers():
                self.kill()
        if not process.alive():
            raise ServiceError(f"PgBouncer ended while it started:\n{process.tail()}")
        return self

    def stop(self) -> None:
        """End it; transactions that run may finish."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """Kill -9: every connection through it breaks."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _write(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        if self._account is not None:
            shutil.chown(path, self._account.uid, self._account.gid)
        return path

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


def binary() -> str:
    """The program; a test that needs it is left out where it is missing."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    return found or leave_out("no PgBouncer on this machine (Debian: apt-get install pgbouncer)")
