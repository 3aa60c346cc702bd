"""Rows of the control plane's own tables, written as the other programs write them.

Responsible for: workspaces, catalogs, schemas, datasets and log rows for a test, with defaults for all that the test
does not care about.
Must not know: what Reroot does with them.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Self

import psycopg

from worker.controlplane.connection import plain_url

if TYPE_CHECKING:
    from psycopg.rows import TupleRow


class ControlPlaneFixture:
    """Another program of the control plane: it inserts, and each insert is committed at once.

    Ids are strings, as Reroot's ledger holds them, whatever their type in the tables.
    """

    def __init__(self, url: str) -> None:
        self._connection: psycopg.Connection[TupleRow] = psycopg.connect(
            plain_url(url), autocommit=True, application_name="control plane"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()

    def execute(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[TupleRow]:
        """Run any statement and return its rows, none where it returns none."""
        cursor = self._connection.execute(statement.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    def workspace(self) -> str:
        """A new workspace; returns its id."""
        return self._insert("workspaces", {})

    def catalog(self, workspace: str, name: str = "Sales") -> str:
        """A catalog of the workspace, slug by the trigger; returns its id."""
        return self._insert("catalogs", {"workspace_id": workspace, "name": name})

    def schema(self, catalog: str, name: str = "Europe") -> str:
        """A schema of the catalog, slug by the trigger; returns its id."""
        return self._insert("schemas", {"catalog_id": catalog, "name": name})

    def dataset(self, workspace: str, schema: str | None, name: str = "Orders") -> str:
        """A dataset without a physical place; returns its id."""
        return self._insert("datasets", {"workspace_id": workspace, "schema_id": schema, "name": name})

    def log(
        self,
        dataset: str,
        *,
        status: str = "succeeded",
        iceberg_table: str | None = None,
        snapshot_id: int | None = None,
        row_count: int | None = None,
        mode: str = "sync.full",
    ) -> str:
        """A row of ``iceberg_sync_log``; without ``iceberg_table`` the legacy identifier. Returns its id."""
        identifier = iceberg_table or legacy_identifier(dataset)
        rows = self.execute(
            "INSERT INTO iceberg_sync_log"
            " (dataset_id, mode, status, iceberg_table, snapshot_id, row_count, started_at, finished_at)"
            " VALUES (%s, %s, %s, %s, %s, %s, now(), CASE WHEN %s = 'running' THEN NULL ELSE now() END)"
            " RETURNING id::text",
            (dataset, mode, status, identifier, snapshot_id, row_count, status),
        )
        return str(rows[0][0])

    def place(self, schema: str) -> str:
        """``{catalog.slug}.{schema.slug}`` of a schema."""
        rows = self.execute(
            "SELECT c.slug || '.' || s.slug FROM schemas s JOIN catalogs c ON c.id = s.catalog_id"
            " WHERE s.id::text = %s",
            (schema,),
        )
        return str(rows[0][0])

    def iceberg_namespace(self, dataset: str) -> str | None:
        """The column, as it is now."""
        value = self.execute("SELECT iceberg_namespace FROM datasets WHERE id::text = %s", (dataset,))[0][0]
        return None if value is None else str(value)

    def logged_identifiers(self, dataset: str, status: str = "succeeded") -> list[str]:
        """Every identifier that the log has for the dataset, oldest first."""
        rows = self.execute(
            "SELECT iceberg_table FROM iceberg_sync_log WHERE dataset_id::text = %s AND status = %s"
            " ORDER BY started_at, id",
            (dataset, status),
        )
        return [str(row[0]) for row in rows]

    def _insert(self, table: str, values: dict[str, str | None]) -> str:
        identity = str(uuid.uuid4())
        columns = ", ".join(("id", *values))
        marks = ", ".join(["%s"] * (len(values) + 1))
        self.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", (identity, *values.values()))
        return identity


def legacy_identifier(dataset: str) -> str:
    """Where a dataset's table was born: ``datasets.ds_<hex of its id>``."""
    return f"datasets.ds_{dataset.replace('-', '')}"
