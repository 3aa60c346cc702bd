"""Fixtures for whoever tests against a real catalog: import them into a conftest or a test module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.rest_server import RestServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Servers


class RestServers:
    """The session's reference REST servers by version and database, each started when it is first asked for."""

    def __init__(self, folders: pytest.TempPathFactory, postgres: Servers) -> None:
        self._folders = folders
        self._postgres = postgres
        self._servers: dict[tuple[str, str], RestServer] = {}

    def running(self, version: str, database: str) -> RestServer:
        """The server of that version on ``postgres`` or ``sqlite``; tests keep apart by their names."""
        if (version, database) not in self._servers:
            RestServer.needed(version)  # before anything is made for it
            name = f"reference_{version.replace('.', '_')}"
            folder = self._folders.mktemp(f"{name}_{database}")
            url = f"sqlite:///{folder}/catalog.db"
            if database == "postgres":
                url = self._postgres.running("18").create_database(name)
            self._servers[version, database] = RestServer(folder, url, version=version).start()
        if database == "postgres":
            self._postgres.running("18")  # a test may have left it stopped
        return self._servers[version, database]

    def stop(self) -> None:
        """Stop all that run."""
        while self._servers:
            self._servers.popitem()[1].stop()


_SERVERS = pytest.StashKey[RestServers]()


@pytest.fixture(scope="session")
def rest_servers(
    request: pytest.FixtureRequest, postgres_servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestServers]:
    """All of them. Each module that imports this fixture has one of its own, as pytest sees it; they are the same."""
    stash = request.session.stash
    first = _SERVERS not in stash
    if first:
        stash[_SERVERS] = RestServers(tmp_path_factory, postgres_servers)
    yield stash[_SERVERS]
    if first:
        stash[_SERVERS].stop()
        del stash[_SERVERS]


@pytest.fixture
def rest_server(rest_servers: RestServers) -> RestServer:
    """The reference REST server that most tests use."""
    return rest_servers.running("1.10.1", "postgres")
