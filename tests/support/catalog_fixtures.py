"""Fixtures for whoever tests against a real catalog: import them into a conftest or a test module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.rest_server import RestServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Servers

_RUNNING = pytest.StashKey[RestServer]()


@pytest.fixture(scope="session")
def rest_server(
    request: pytest.FixtureRequest, postgres_servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestServer]:
    """The session's reference REST server, on a database of its own; tests keep apart by their names.

    Each module that imports this fixture has one of its own, as pytest sees it; the server is the same.
    """
    stash = request.session.stash
    postgres = postgres_servers.running("18")
    first = _RUNNING not in stash
    if first:
        database = postgres.create_database("reference_catalog")
        stash[_RUNNING] = RestServer(tmp_path_factory.mktemp("reference"), database).start()
    yield stash[_RUNNING]
    if first:
        stash[_RUNNING].stop()
