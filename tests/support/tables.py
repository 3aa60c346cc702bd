"""Real Iceberg tables, written by pyiceberg as a program of the control plane would write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import urllib3
from pydantic import SecretStr
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError

from worker.lakehouse.auth import authorization
from worker.lakehouse.connection import CatalogConnection, CatalogType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from worker.identifiers import TableIdentifier

SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("name", pa.string())])
"""What every table here holds."""


def sqlalchemy_url(database_url: str) -> str:
    """A ``postgresql://`` URL with the driver that is installed here spelt out, as SQLAlchemy wants it."""
    return database_url.replace("postgresql://", "postgresql+psycopg://", 1)


def pyiceberg_catalog_for(connection: CatalogConnection, warehouse: str) -> Catalog:
    """Pyiceberg's own catalog on the same warehouse as the adapters: the writers and readers of these tests."""
    uri = connection.uri.get_secret_value()
    properties = {name: value.get_secret_value() for name, value in connection.properties.items()}
    if connection.type is CatalogType.SQL:
        location = connection.warehouse_location or ""
        return SqlCatalog(warehouse, uri=uri, warehouse=location, **properties)
    # Without an authentication pyiceberg would send the header "Bearer None"; ours says who both are.
    properties |= _who_we_are(connection)
    return RestCatalog(warehouse, uri=uri, warehouse=warehouse, auth={"type": "noop"}, **properties)  # type: ignore[arg-type]


def _who_we_are(connection: CatalogConnection) -> dict[str, str]:
    pool = urllib3.PoolManager(timeout=connection.timeout_seconds)
    header = authorization(connection, pool).header()
    pool.clear()
    return {} if header is None else {"header.Authorization": header.get_secret_value()}


def sql_connection(database_url: str, warehouse_folder: Path) -> CatalogConnection:
    """The connection of an SQL catalog in ``database_url``, its tables in a local folder."""
    return CatalogConnection(
        type=CatalogType.SQL,
        uri=SecretStr(sqlalchemy_url(database_url)),
        warehouse_location=f"file://{warehouse_folder}",
    )


def rows_from(first: int, count: int) -> pa.Table:
    """``count`` rows, numbered from ``first``."""
    numbers = list(range(first, first + count))
    return pa.table({"number": numbers, "name": [f"name {number}" for number in numbers]}, schema=SCHEMA)


def make_namespaces(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    """The namespace and its parents; those that are there stay."""
    for depth in range(1, len(namespace) + 1):
        try:
            catalog.create_namespace(namespace[:depth])
        except NamespaceAlreadyExistsError:
            continue


def make_table(
    catalog: Catalog,
    identifier: TableIdentifier,
    *,
    rows: int = 10,
    snapshots: int = 1,
    location: str | None = None,
    properties: Mapping[str, str] | None = None,
    schema: pa.Schema = SCHEMA,
) -> Table:
    """A table with ``snapshots`` appends of ``rows`` rows each; its namespaces are made too."""
    make_namespaces(catalog, identifier.namespace)
    name = (*identifier.namespace, identifier.name)
    table = catalog.create_table(name, schema, location=location, properties=dict(properties or {}))
    for number in range(snapshots):
        table.append(rows_from(number * rows, rows))
    return table


def append(catalog: Catalog, identifier: TableIdentifier, *, rows: int = 1) -> Table:
    """Append through a name, as a writer does that resolved it."""
    table = catalog.load_table((*identifier.namespace, identifier.name))
    table.append(rows_from(0, rows))
    return table


def count_rows(catalog: Catalog, identifier: TableIdentifier) -> int:
    """The rows that a reader of the name finds, delete files taken into account."""
    rows: int = catalog.load_table((*identifier.namespace, identifier.name)).scan().to_arrow().num_rows
    return rows


def files_under(folder: Path) -> set[str]:
    """Every file under a folder, relative to it."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
