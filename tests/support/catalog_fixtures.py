"""Fixtures for whoever tests against a real catalog: import them into a conftest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.rest_server import RestServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Servers


@pytest.fixture(scope="session")
def rest_server(postgres_servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    """The session's reference REST server, on a database of its own; tests keep apart by their namespaces."""
    postgres = postgres_servers.running("18")
    database = postgres.create_database("reference_catalog")
    with RestServer(tmp_path_factory.mktemp("reference"), database) as server:
        yield server
