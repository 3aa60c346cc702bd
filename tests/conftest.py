"""Fixtures that every test may ask for: real Postgres, a migrated database of its own, real Valkey.

``postgres_server``   the session's server. Embedded Postgres 18 always; a test marked ``every_postgres`` runs a second
                      time on Postgres 15 where its binaries exist.
``database``          the URL of a fresh database with the given tables and Reroot's migrations; dropped at the end.
``control_plane``     another program of the control plane on that database, to fill it.
``pooled_database``   the URL of the same database through PgBouncer in transaction mode.
``valkey_server``     the session's server; ``valkey``: its URL, emptied for the test.

A test that kills a server may do so: the next test finds it running again.
"""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import psycopg
import pytest

from demo.processes import wait_until
from demo.services import Postgres, Valkey
from tests.contract.summary import Results
from tests.support import left_out
from tests.support.controlplane import ControlPlaneFixture
from tests.support.nightly import QUICK
from tests.support.pgbouncer import PgBouncer

if TYPE_CHECKING:
    from collections.abc import Iterator

EMBEDDED: Final = "18"
DEBIAN: Final = "15"
DEBIAN_BINARIES: Final = Path("/usr/lib/postgresql/15/bin")
TEMPLATE: Final = "reroot_template"
SERVERS: Final = {"postgres_server", "postgres_servers", "valkey_server"}
"""The fixtures behind which everything stands that is started."""

_OPTIONS: Final = {
    # Tests kill processes, never the machine: what a killed server has written is with the kernel, synced or not.
    "fsync": "off",
    "autovacuum": "off",  # it holds locks at moments that no test has chosen
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_postgres: runs on every Postgres version that is supported")
    config.pluginmanager.register(left_out)
    config.pluginmanager.register(Results())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "postgres_server" in metafunc.fixturenames:
        everywhere = metafunc.definition.get_closest_marker("every_postgres") is not None
        versions = [EMBEDDED, DEBIAN] if everywhere else [EMBEDDED]
        ids = [f"postgres{version}" for version in versions]
        metafunc.parametrize("postgres_server", versions, indirect=True, scope="session", ids=ids)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the quick run, take out the tests that need a server."""
    if QUICK:
        started = [item for item in items if SERVERS & set(getattr(item, "fixturenames", ()))]
        config.hook.pytest_deselected(items=started)
        items[:] = [item for item in items if item not in started]


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """Give SIGINT and SIGHUP their own handlers: a run in the background, or under nohup, inherits them as ignored.

    Every process that the tests start would inherit that as well, and tests interrupt some of them.
    """
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGHUP, hang_up)


class Servers:
    """The session's Postgres servers by version, each started when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[str, Postgres] = {}

    def running(self, version: str) -> Postgres:
        """The server of that version: running, whatever an earlier test did to it."""
        if version not in self._servers:
            binaries = DEBIAN_BINARIES if version == DEBIAN else None
            self._servers[version] = Postgres(self._folder / version, binaries=binaries, options=_OPTIONS)
        return self._servers[version].start()

    def remove(self) -> None:
        """Stop all and remove their folders."""
        for server in self._servers.values():
            server.remove()


@pytest.fixture(scope="session")
def postgres_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """All of them, whatever the order in which tests ask for versions."""
    servers = Servers(tmp_path_factory.mktemp("postgres"))
    yield servers
    servers.remove()


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest, postgres_servers: Servers) -> Postgres:
    """The session's Postgres; a test that needs one to itself makes ``Postgres(tmp_path / "postgres")``."""
    if request.param == DEBIAN and not (DEBIAN_BINARIES / "initdb").exists():
        left_out.leave_out("no Postgres 15 on this machine (Debian: apt-get install postgresql-15)")
    return postgres_servers.running(request.param)


@pytest.fixture(scope="session")
def migrated_template(postgres_server: Postgres) -> str:
    """The name of a database that has been migrated once, to be cloned."""
    # Late, so that a test that needs no database runs without Alembic.
    from worker.controlplane import migrate  # noqa: PLC0415 - see the line above

    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (TEMPLATE,)).fetchone()
    if known is None:
        migrate.upgrade(postgres_server.create_database(TEMPLATE + "_half"), with_baseline=True)
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {TEMPLATE}_half RENAME TO {TEMPLATE}".encode())
    return TEMPLATE


_numbers = itertools.count(1)


@pytest.fixture
def empty_database(postgres_server: Postgres) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    yield from _fresh(postgres_server, None)


@pytest.fixture
def database(postgres_server: Postgres, migrated_template: str) -> Iterator[str]:
    """The URL of a fresh, migrated database."""
    yield from _fresh(postgres_server, migrated_template)


def _fresh(server: Postgres, template: str | None) -> Iterator[str]:
    name = f"test_{next(_numbers)}"
    server.start()
    yield server.create_database(name, template)
    server.start()  # a test may have left it stopped
    server.drop_database(name)


@pytest.fixture
def control_plane(database: str) -> Iterator[ControlPlaneFixture]:
    """Another program of the control plane on this test's database."""
    with ControlPlaneFixture(database) as fixture:
        yield fixture


@pytest.fixture
def pooled_database(database: str, postgres_server: Postgres, tmp_path: Path) -> Iterator[str]:
    """The URL of this test's database through PgBouncer in transaction mode."""
    with PgBouncer(tmp_path / "pgbouncer", postgres_server) as pooler:
        yield pooler.url(urlsplit(database).path.removeprefix("/"))


@pytest.fixture(autouse=True)
def no_leaked_locks(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves an advisory lock behind: a job that does would block its dataset's writers."""
    if "database" not in request.fixturenames:
        yield
        return
    url: str = request.getfixturevalue("database")
    yield
    request.getfixturevalue("postgres_server").start()
    with psycopg.connect(url, autocommit=True) as connection:
        # Bounded patience: a backend whose client was killed needs a moment to notice.
        wait_until(lambda: not _advisory_locks(connection), seconds=10, what="every advisory lock is released")


def _advisory_locks(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
    row = connection.execute(
        "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchone()
    return bool(row and row[0])


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """The session's Valkey."""
    with Valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
def valkey(valkey_server: Valkey) -> str:
    """The URL of the session's Valkey, running and empty."""
    valkey_server.start().flush()
    return valkey_server.url()
