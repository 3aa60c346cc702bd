"""Another program's work: rows in the control plane, tables in the lakehouse, all born in the one flat namespace.

Responsible for: the state that Reroot finds on its first day, and one append as the control plane's programs make it
(under the dataset's lock, through the resolver, signed).
Must not know: Reroot's ledger.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from pyiceberg.catalog.sql import SqlCatalog

from worker.identifiers import LEGACY_NAMESPACE, default_table_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from psycopg.rows import TupleRow
    from pyiceberg.table import Table

    from demo.inventory import Holding

    Connection = psycopg.Connection[TupleRow]


@dataclass(frozen=True, slots=True)
class Born:
    """A dataset as the control plane knows it."""

    dataset_id: str
    workspace_id: str
    holding: Holding


@dataclass(frozen=True, slots=True)
class Lakehouse:
    """Where tables live: an SQL catalog (one warehouse per workspace) and a folder."""

    catalog_url: str
    location: str

    def warehouse(self, workspace_id: str) -> SqlCatalog:
        """The workspace's warehouse, as pyiceberg opens it."""
        return SqlCatalog(warehouse_name(workspace_id), uri=self.catalog_url, warehouse=self.location)


def warehouse_name(workspace_id: str) -> str:
    """The same as ``REROOT_WAREHOUSE_TEMPLATE=w_{workspace_hex}``."""
    return "w_" + workspace_id.replace("-", "")


def populate(database_url: str, lakehouse: Lakehouse, holdings: Iterable[Holding]) -> list[Born]:
    """Write everything; returns the datasets in the order of the inventory."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        filing = _Filing(connection)
        born = [filing.dataset(holding) for holding in holdings]
        warehouses = {workspace: lakehouse.warehouse(workspace) for workspace in {one.workspace_id for one in born}}
        for warehouse in warehouses.values():
            warehouse.create_namespace(LEGACY_NAMESPACE)
        for one in born:
            _first_write(connection, warehouses[one.workspace_id], one)
        for warehouse in warehouses.values():
            warehouse.close()
    return born


def append(database_url: str, lakehouse: Lakehouse, one: Born, rows: pa.Table) -> str:
    """Append rows to a dataset's table, wherever it lives, and return its identifier."""
    with psycopg.connect(database_url) as connection:
        # The very lock that a move takes: one of the two waits for the other. It ends with the transaction.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (one.dataset_id,))
        resolved = connection.execute("SELECT reroot.table_identifier(%s::uuid)", (one.dataset_id,)).fetchone()
        identifier = str(resolved[0]) if resolved else ""
        warehouse = lakehouse.warehouse(one.workspace_id)
        table = warehouse.load_table(identifier)
        table.append(rows, snapshot_properties=_signature())
        _log(connection, one.dataset_id, identifier, table, mode="sync.append")
        warehouse.close()
    return identifier


def _signature() -> dict[str, str]:
    return {"carbon.operation-id": str(uuid.uuid4()), "carbon.principal": "demo"}


class _Filing:
    """Workspaces, catalogs and schemas, made when the first dataset needs them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[tuple[str, ...], str] = {}

    def dataset(self, holding: Holding) -> Born:
        workspace = self._once(("workspaces", holding.workspace), {})
        catalog = self._once(
            ("catalogs", holding.workspace, holding.catalog), {"workspace_id": workspace, "name": holding.catalog}
        )
        schema = None
        if holding.schema is not None:
            key = ("schemas", holding.workspace, holding.catalog, holding.schema)
            schema = self._once(key, {"catalog_id": catalog, "name": holding.schema})
        row = {"workspace_id": workspace, "schema_id": schema, "name": holding.name}
        return Born(self._insert("datasets", row), workspace, holding)

    def _once(self, key: tuple[str, ...], row: dict[str, str | None]) -> str:
        if key not in self._known:
            self._known[key] = self._insert(key[0], row)
        return self._known[key]

    def _insert(self, table: str, row: dict[str, str | None]) -> str:
        identity = str(uuid.uuid4())
        columns = ", ".join(("id", *row))
        marks = ", ".join(["%s"] * (len(row) + 1))
        self._connection.execute(
            f"INSERT INTO {table} ({columns}) VALUES ({marks})".encode(), (identity, *row.values())
        )
        return identity


def _first_write(connection: Connection, warehouse: SqlCatalog, one: Born) -> None:
    identifier = f"{LEGACY_NAMESPACE}.{default_table_name(one.dataset_id)}"
    holding = one.holding
    if holding.failed:
        _log_failure(connection, one.dataset_id, identifier, "the source answered 403")
        return
    table = warehouse.create_table(identifier, holding.columns)
    for rows in holding.commits:
        table.append(rows, snapshot_properties=_signature())
        _log(connection, one.dataset_id, identifier, table, mode="sync.append")
    if holding.delete is not None:
        table.delete(holding.delete, snapshot_properties=_signature())
    if holding.delete is not None or not holding.commits:
        _log(connection, one.dataset_id, identifier, table, mode="manual.table")


def _log(connection: Connection, dataset_id: str, identifier: str, table: Table, *, mode: str) -> None:
    snapshot = table.current_snapshot()
    summary = snapshot.summary if snapshot else None
    rows = summary["total-records"] if summary else None
    connection.execute(
        "INSERT INTO iceberg_sync_log"
        " (dataset_id, mode, status, iceberg_table, snapshot_id, row_count, started_at, finished_at)"
        " VALUES (%s, %s, 'succeeded', %s, %s, %s, clock_timestamp(), clock_timestamp())",
        (dataset_id, mode, identifier, snapshot.snapshot_id if snapshot else None, int(rows or 0)),
    )


def _log_failure(connection: Connection, dataset_id: str, identifier: str, error: str) -> None:
    connection.execute(
        "INSERT INTO iceberg_sync_log (dataset_id, mode, status, iceberg_table, error, started_at, finished_at)"
        " VALUES (%s, 'sync.full', 'failed', %s, %s, clock_timestamp(), clock_timestamp())",
        (dataset_id, identifier, error),
    )
