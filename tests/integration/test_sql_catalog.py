"""Where SqlCatalog keeps the port's promises differently: each trap, and that it is closed."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from pydantic import SecretStr

from demo.processes import wait_until
from tests.support.tables import make_table, pyiceberg_catalog_for, sql_connection
from worker.identifiers import TableIdentifier
from worker.lakehouse.lakehouse import OpenLakehouse, open_lakehouse
from worker.lakehouse.port import Catalog, CatalogError, ErrorCode, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from demo.services import Postgres
    from worker.lakehouse.connection import CatalogConnection

OLD = TableIdentifier(("datasets",), "ds_1")
NEW = TableIdentifier(("main", "ventas"), "ds_1")


@pytest.fixture
def connection(empty_database: str, tmp_path: Path) -> CatalogConnection:
    return sql_connection(empty_database, tmp_path / "warehouse")


@pytest.fixture
def lakehouse(connection: CatalogConnection) -> Iterator[OpenLakehouse]:
    opened = open_lakehouse(connection)
    yield opened
    opened.close()


@pytest.fixture
def catalog(lakehouse: OpenLakehouse) -> Catalog:
    return lakehouse.catalog("w_1")


def refused(action: Callable[[], object]) -> CatalogError:
    with pytest.raises(CatalogError) as caught:
        action()
    return caught.value


def write_table(connection: CatalogConnection, identifier: TableIdentifier, warehouse: str = "w_1") -> None:
    writer = pyiceberg_catalog_for(connection, warehouse)
    make_table(writer, identifier)
    writer.close()


def test_processes_that_start_on_an_empty_database_all_at_once(connection: CatalogConnection) -> None:
    opened = [open_lakehouse(connection) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(lambda one: one.catalog("w_1").namespace_exists(("datasets",)), opened))
    for one in opened:
        one.close()
    assert seen == [False] * 8


def test_warehouses_of_one_database_do_not_see_each_other(
    connection: CatalogConnection, lakehouse: OpenLakehouse
) -> None:
    write_table(connection, OLD, "w_1")
    assert lakehouse.catalog("w_1").load(OLD).identifier == OLD
    assert refused(lambda: lakehouse.catalog("w_2").load(OLD)).code is ErrorCode.TABLE_MISSING
    assert not lakehouse.catalog("w_2").namespace_exists(OLD.namespace)


def test_the_first_version_of_its_tables_is_understood(
    connection: CatalogConnection, catalog: Catalog, empty_database: str
) -> None:
    write_table(connection, OLD)
    with psycopg.connect(empty_database, autocommit=True) as database:
        database.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    location = catalog.load(OLD).metadata_location
    catalog.create_namespace(NEW.namespace)
    catalog.register(NEW, location)
    assert catalog.load(NEW).metadata_location == location


@pytest.mark.parametrize("name", ["x" * 256, "y" * 1000])
def test_a_name_that_is_too_long_is_refused_and_not_cut(
    connection: CatalogConnection, catalog: Catalog, name: str
) -> None:
    write_table(connection, OLD)
    error = refused(lambda: catalog.register(replace(OLD, name=name), catalog.load(OLD).metadata_location))
    assert (error.code, error.kind) == (ErrorCode.INVALID, ErrorKind.PERMANENT)
    assert len(str(error).splitlines()) == 1


def test_a_table_whose_file_is_not_metadata_is_not_registered(
    connection: CatalogConnection, catalog: Catalog, tmp_path: Path
) -> None:
    write_table(connection, OLD)
    catalog.create_namespace(NEW.namespace)
    (tmp_path / "x.metadata.json").write_text("{}")
    error = refused(lambda: catalog.register(NEW, f"file://{tmp_path}/x.metadata.json"))
    assert error.code is ErrorCode.UNREADABLE
    assert list(catalog.list_tables(NEW.namespace)) == []


def test_a_database_that_is_not_there_was_certainly_not_changed(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"postgresql://app:hidden@127.0.0.1:{free.getsockname()[1]}/x"
    opened = open_lakehouse(sql_connection(url, tmp_path))
    error = refused(lambda: opened.catalog("w_1").drop(OLD))
    assert (error.code, error.kind) == (ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT)
    assert "hidden" not in str(error)
    assert len(str(error).splitlines()) == 1


def test_a_wrong_password_is_not_shown(empty_database: str, tmp_path: Path) -> None:
    url = empty_database.replace("app:", "app:hidden", 1)
    opened = open_lakehouse(sql_connection(url, tmp_path))
    error = refused(lambda: opened.catalog("w_1").load(OLD))
    assert error.kind is ErrorKind.TRANSIENT
    assert "hidden" not in str(error)


@pytest.mark.parametrize("url", ["no url at all hidden", "nosuchdb://app:hidden@h/x", ""])
def test_an_address_of_no_database(url: str, tmp_path: Path) -> None:
    opened = open_lakehouse(replace(sql_connection("", tmp_path), uri=SecretStr(url)))
    error = refused(lambda: opened.catalog("w_1").load(OLD))
    assert (error.code, error.kind) == (ErrorCode.INVALID, ErrorKind.PERMANENT)
    assert "hidden" not in str(error)


def test_a_connection_that_broke_while_it_was_idle_is_replaced(
    connection: CatalogConnection, catalog: Catalog, postgres_server: Postgres
) -> None:
    write_table(connection, OLD)
    catalog.load(OLD)
    postgres_server.restart(immediate=True)
    assert catalog.load(OLD).identifier == OLD


def test_a_connection_that_breaks_in_the_middle_leaves_it_unknown(
    connection: CatalogConnection, catalog: Catalog, empty_database: str
) -> None:
    write_table(connection, OLD)
    catalog.load(OLD)
    with psycopg.connect(empty_database) as blocker, ThreadPoolExecutor(1) as pool:
        blocker.execute("SELECT 1 FROM iceberg_tables FOR UPDATE")
        dropping = pool.submit(lambda: refused(lambda: catalog.drop(OLD)))
        _end_the_one_that_waits(empty_database)
        error = dropping.result(timeout=30)
    assert (error.code, error.kind) == (ErrorCode.UNCLEAR, ErrorKind.UNKNOWN)
    assert catalog.load(OLD).identifier == OLD


def _end_the_one_that_waits(url: str) -> None:
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'reroot-catalog' AND wait_event_type = 'Lock'"
    )
    with psycopg.connect(url, autocommit=True) as admin:
        wait_until(lambda: bool(admin.execute(end).fetchall()), seconds=30, what="a request waits for a lock")


def test_a_fork_opens_its_own_connection(connection: CatalogConnection, lakehouse: OpenLakehouse) -> None:
    write_table(connection, OLD)
    parent = lakehouse.catalog("w_1")
    parent.load(OLD)
    child = os.fork()
    if child == 0:
        fresh = lakehouse.catalog("w_1")
        os._exit(0 if fresh is not parent and fresh.load(OLD).identifier == OLD else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert parent.load(OLD).identifier == OLD
