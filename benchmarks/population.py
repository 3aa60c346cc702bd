"""Rows of the control plane for the benchmarks, as its own programs would have written them.

Responsible for: catalogs, schemas, datasets, log rows, and the ledger's rows as the producer writes them.
Must not know: what is measured with them.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg

from worker.controlplane.connection import connect
from worker.controlplane.enqueue import PlannedRow, enqueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.lake import Born

SCHEMAS: Final = 4


@dataclass(frozen=True, slots=True)
class Place:
    """A schema, and the namespace that its slugs make."""

    schema_id: str
    namespace: str


class Population:
    """One workspace with one catalog and a few schemas."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.workspace_id = str(uuid.uuid4())
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO workspaces (id) VALUES (%s)", (self.workspace_id,))
            self.places = [self._place(connection, number) for number in range(SCHEMAS)]

    def settle(self, born: Sequence[Born]) -> list[str]:
        """Datasets with one succeeded log row each, queued in the ledger; the namespace that each will go to."""
        places = [self.places[number % SCHEMAS] for number in range(len(born))]
        with psycopg.connect(self._url) as connection, connection.cursor() as cursor:
            with cursor.copy("COPY datasets (id, workspace_id, schema_id, name) FROM STDIN") as copy:
                for one, place in zip(born, places, strict=True):
                    copy.write_row((one.dataset_id, self.workspace_id, place.schema_id, "Orders"))
            columns = "dataset_id, mode, status, iceberg_table, snapshot_id, row_count, finished_at"
            with cursor.copy(f"COPY iceberg_sync_log ({columns}) FROM STDIN") as copy:
                for one in born:
                    identifier = str(one.identifier)
                    copy.write_row((one.dataset_id, "sync.full", "succeeded", identifier, one.snapshot_id, 1000, "now"))
        return [place.namespace for place in places]

    def enqueue(self, born: Sequence[Born], namespaces: Sequence[str]) -> None:
        """The ledger's rows, as ``reroot move`` writes them."""
        rows = [
            PlannedRow(
                one.dataset_id, self.workspace_id, str(one.identifier), one.identifier.name, namespace, claim=None
            )
            for one, namespace in zip(born, namespaces, strict=True)
        ]
        with connect(self._url, role="producer") as connection:
            enqueue(connection, rows)
            connection.execute("ANALYZE datasets, iceberg_sync_log, reroot.moves")

    def _place(self, connection: Any, number: int) -> Place:
        catalog_id, schema_id = str(uuid.uuid4()), str(uuid.uuid4())
        connection.execute(
            "INSERT INTO catalogs (id, workspace_id, name) VALUES (%s, %s, %s)",
            (catalog_id, self.workspace_id, f"Catalog {number}"),
        )
        row = connection.execute(
            "INSERT INTO schemas (id, catalog_id, name) VALUES (%s, %s, %s)"
            " RETURNING (SELECT slug FROM catalogs WHERE id = catalog_id) || '.' || slug",
            (schema_id, catalog_id, "Europe"),
        ).fetchone()
        return Place(schema_id, row[0])
