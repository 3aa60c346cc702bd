"""The subjects of the contract suite."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from tests.contract.capabilities import MARKER
from tests.contract.remote import NamedSubject, RemoteSubject, is_named, named_label
from tests.contract.subjects import (
    WAREHOUSE,
    RealSubject,
    RealTablesInTheDouble,
    RestDoubleSubject,
    SimulatedTables,
    Subject,
)
from tests.contract.summary import RECORDINGS, asked_for
from tests.support import nessie as nessie_server
from tests.support.catalog_fixtures import rest_servers
from tests.support.nightly import NIGHTLY, QUICK
from tests.support.object_store import ObjectStore
from tests.support.rest_double import TEMPERAMENTS
from tests.support.tables import sql_connection
from tests.support.vending_catalog import VendingCatalog
from worker.lakehouse.connection import CatalogConnection, CatalogType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.support.rest_double import Temperament

__all__ = ["rest_servers"]


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


def _rest(version: str, database: str) -> Callable[[pytest.FixtureRequest], Subject]:
    def subject(request: pytest.FixtureRequest) -> Subject:
        server = request.getfixturevalue("rest_servers").running(version, database)
        # Pages of two, so that every listing here has several.
        return RealSubject(server.connection(**{"rest-page-size": "2"}), server.warehouse)

    return subject


def _rest_double(temperament: Temperament) -> Callable[[pytest.FixtureRequest], Subject]:
    return lambda request: RestDoubleSubject(temperament, request.getfixturevalue("tmp_path") / "warehouse")


def _nessie(request: pytest.FixtureRequest) -> Subject:
    connection = request.getfixturevalue("nessie").connection(**{"rest-page-size": "2"})
    return RemoteSubject(connection, nessie_server.WAREHOUSE, "nessie-0.99.0")


def _vending(request: pytest.FixtureRequest) -> Subject:
    server = request.getfixturevalue("vending")
    connection = CatalogConnection(CatalogType.REST, SecretStr(server.uri))
    return RemoteSubject(connection, WAREHOUSE, "correct")


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """The session's object store."""
    with ObjectStore(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture(scope="session")
def nessie(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[nessie_server.Nessie]:
    """The session's Nessie."""
    with nessie_server.Nessie(tmp_path_factory.mktemp("nessie"), object_store) as server:
        yield server


@pytest.fixture(scope="session")
def vending(object_store: ObjectStore) -> Iterator[VendingCatalog]:
    """The session's catalog that hands out credentials; nobody but it says how storage is reached."""
    with VendingCatalog.over(object_store) as server:
        server.make_warehouse(WAREHOUSE, f"{object_store.root}/vending")
        yield server


SUBJECTS: Mapping[str, Callable[[pytest.FixtureRequest], Subject]] = {
    "double": _double,
    "simulated": _simulated,
    "sqlite": _sql_on_sqlite,
    "postgres": _sql_on_postgres,
    "rest-1.10.1-postgres": _rest("1.10.1", "postgres"),
    "rest-1.10.1-sqlite": _rest("1.10.1", "sqlite"),
    "rest-1.11.0-postgres": _rest("1.11.0", "postgres"),
    "rest-1.11.0-sqlite": _rest("1.11.0", "sqlite"),
    **{f"double-{name}": _rest_double(temperament) for name, temperament in TEMPERAMENTS.items()},
    **({"nessie-0.99.0": _nessie, "double-that-vends": _vending} if NIGHTLY else {}),
}
if QUICK:
    SUBJECTS = {name: SUBJECTS[name] for name in ("double", "simulated")}
if is_named():
    SUBJECTS = {named_label(): lambda _: NamedSubject()}


def pytest_configure(config: pytest.Config) -> None:
    """Announce the marker of what a test needs of a catalog."""
    config.addinivalue_line("markers", f"{MARKER}(capability, …): what not every catalog can do by its nature")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how much of the recordings the double answers alike."""
    lines = config.stash.get(RECORDINGS, [])
    if lines and asked_for(config):
        terminalreporter.section("recordings of real servers")
        terminalreporter.write_line("\n".join(lines))


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
    """Each catalog in turn. A test that needs what this one lacks is run all the same, and must fail."""
    subject = SUBJECTS[request.param](request)
    for marker in request.node.iter_markers(MARKER):
        for capability in marker.args:
            if capability in subject.lacks:
                request.applymarker(pytest.mark.xfail(reason=subject.lacks[capability], strict=True))
    yield subject
    subject.close()
