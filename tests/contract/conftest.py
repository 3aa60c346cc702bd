"""The subjects of the contract suite."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from tests.contract.subjects import RealSubject, RealTablesInTheDouble, SimulatedTables, Subject
from tests.support.catalog_fixtures import rest_server
from tests.support.tables import sql_connection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from worker.lakehouse.connection import CatalogConnection

__all__ = ["rest_server"]


def _sqlite(folder: Path) -> CatalogConnection:
    return replace(sql_connection("", folder / "warehouse"), uri=SecretStr(f"sqlite:///{folder}/catalog.db"))


def _double(request: pytest.FixtureRequest) -> Subject:
    folder: Path = request.getfixturevalue("tmp_path")
    return RealTablesInTheDouble(_sqlite(folder), folder / "warehouse")


def _simulated(request: pytest.FixtureRequest) -> Subject:
    return SimulatedTables()


def _sql_on_sqlite(request: pytest.FixtureRequest) -> Subject:
    folder: Path = request.getfixturevalue("tmp_path")
    return RealSubject(_sqlite(folder), folder / "warehouse")


def _sql_on_postgres(request: pytest.FixtureRequest) -> Subject:
    folder: Path = request.getfixturevalue("tmp_path")
    url = request.getfixturevalue("sql_catalog_database")
    return RealSubject(sql_connection(url, folder / "warehouse"), folder / "warehouse")


def _rest(request: pytest.FixtureRequest) -> Subject:
    server = request.getfixturevalue("rest_server")
    # Pages of two, so that every listing here has several.
    return RealSubject(server.connection(**{"rest-page-size": "2"}), server.warehouse)


SUBJECTS = {
    "double": _double,
    "simulated": _simulated,
    "sqlite": _sql_on_sqlite,
    "postgres": _sql_on_postgres,
    "rest": _rest,
}


@pytest.fixture
def sql_catalog_database(request: pytest.FixtureRequest) -> str:
    """A database for a SqlCatalog, empty at first and shared by the session: tests keep apart by their namespaces."""
    postgres = request.getfixturevalue("postgres_servers").running("18")
    known = request.session.stash
    if _DATABASE not in known:
        known[_DATABASE] = postgres.create_database("sql_catalog")
    return known[_DATABASE]


_DATABASE = pytest.StashKey[str]()


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Each catalog in turn."""
    subject = SUBJECTS[request.param](request)
    yield subject
    subject.close()
