"""Real tables in a real catalog, queued for real workers.

``Fleet`` makes datasets with tables in an SQL catalog beside the ledger, orders their moves as the producer does, and
says where they stand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg

from demo.processes import wait_until
from tests.support.controlplane import ControlPlaneFixture, legacy_identifier
from tests.support.tables import make_table, pyiceberg_catalog_for, rows_from, sql_connection
from worker.identifiers import QUARANTINE_NAMESPACE, TableIdentifier

if TYPE_CHECKING:
    from pathlib import Path

WAREHOUSE = "lake"


@dataclass
class Fleet:
    """Datasets of one workspace, by the order in which they were made."""

    database: str
    folder: Path
    plane: ControlPlaneFixture
    datasets: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.catalog = pyiceberg_catalog_for(sql_connection(self.database, self.folder), WAREHOUSE)
        self.workspace = self.plane.workspace()
        self.schema = self.plane.schema(self.plane.catalog(self.workspace))

    def make(self, count: int, *, queued: bool = True) -> list[str]:
        """Datasets with a table of ten rows each."""
        made = [self.plane.dataset(self.workspace, self.schema) for _ in range(count)]
        for dataset in made:
            name = legacy_identifier(dataset)
            table = make_table(self.catalog, TableIdentifier.within("datasets", name.removeprefix("datasets.")))
            self.plane.log(dataset, snapshot_id=table.metadata.current_snapshot_id, row_count=10)
        self.datasets += made
        if queued:
            self.queue(made)
        return made

    def queue(self, datasets: list[str]) -> None:
        """The producer's rows; the workers' sweepers publish them."""
        for dataset in datasets:
            old = legacy_identifier(dataset)
            self.plane.execute(
                "INSERT INTO reroot.moves (dataset_id, workspace_id, source_identifier, table_name, target_namespace)"
                " VALUES (%s, %s, %s, %s, %s)",
                (dataset, self.workspace, old, old.removeprefix("datasets."), self.plane.place(self.schema)),
            )
        self.plane.execute("NOTIFY reroot_due")

    def states(self) -> dict[str, int]:
        """How many moves are in each state."""
        rows = self.plane.execute("SELECT state, count(*) FROM reroot.moves GROUP BY state")
        return {str(state): int(count) for state, count in rows}

    def wait_for(self, state: str, *, count: int | None = None, seconds: float = 90) -> None:
        """Until that many moves, or all, are in the state."""
        wanted = len(self.datasets) if count is None else count
        wait_until(lambda: self.states().get(state, 0) >= wanted, seconds=seconds, what=f"{wanted} {state}")

    def append(self, dataset: str, rows: int = 5) -> None:
        """A program of the control plane writes: under the lock, through the resolver, with its log row."""
        with psycopg.connect(self.database) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (dataset,))
            (name,) = connection.execute("SELECT reroot.table_identifier(%s::uuid)", (dataset,)).fetchone() or ("",)
            table = self.catalog.load_table(name)
            table.append(rows_from(1000, rows))
            connection.execute(
                "INSERT INTO iceberg_sync_log"
                " (dataset_id, mode, status, iceberg_table, snapshot_id, started_at, finished_at)"
                " VALUES (%s, 'sync.append', 'succeeded', %s, %s, now(), now())",
                (dataset, name, table.metadata.current_snapshot_id),
            )

    def rows(self, dataset: str) -> int:
        """What a reader counts."""
        (name,) = self.plane.execute("SELECT reroot.table_identifier(%s::uuid)", (dataset,))[0]
        return int(self.catalog.load_table(name).scan().to_arrow().num_rows)

    def names(self) -> dict[str, list[str]]:
        """Every name in the catalog that holds each dataset's table."""
        place = tuple(self.plane.place(self.schema).split("."))
        listed = [
            identifier
            for namespace in (("datasets",), place, (QUARANTINE_NAMESPACE,))
            if self.catalog.namespace_exists(namespace)
            for identifier in self.catalog.list_tables(namespace)
        ]
        return {
            dataset: [".".join(i) for i in listed if i[-1].startswith(legacy_identifier(dataset)[len("datasets.") :])]
            for dataset in self.datasets
        }

    def check_all_done(self) -> None:
        """Every dataset has one name, its place, and its log says so."""
        place = self.plane.place(self.schema)
        expected: dict[str, Any] = {
            dataset: [f"{place}.{legacy_identifier(dataset)[len('datasets.') :]}"] for dataset in self.datasets
        }
        assert self.states() == {"done": len(self.datasets)}
        assert self.names() == expected
        logged = {dataset: sorted(set(self.plane.logged_identifiers(dataset))) for dataset in self.datasets}
        assert logged == expected
