"""A small lakehouse with an operator, a worker and other programs: real tables, in a SqlCatalog unless told otherwise.

Responsible for: datasets whose tables pyiceberg writes, moves as far as a test needs them, what a reader finds.
Must not know: what the commands do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.support import tables
from tests.support.controlplane import legacy_identifier
from tests.support.operator import Operator
from tests.support.place import Place
from worker import wiring
from worker.catalog_access import catalog_connection
from worker.identifiers import LEGACY_NAMESPACE, TableIdentifier
from worker.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.catalog import Catalog

    from tests.support.controlplane import ControlPlaneFixture

WAREHOUSE: Final = "w"


class Lake:
    """An operator, a worker and other programs, on one ledger and one SqlCatalog, or on the REST server at ``rest``."""

    def __init__(
        self,
        database: str,
        valkey: str,
        control_plane: ControlPlaneFixture,
        folder: Path,
        *,
        rest: str = "",
        **changes: str,
    ) -> None:
        self.warehouse = folder / "warehouse"
        own = {
            "REROOT_CATALOG_TYPE": "sql",
            "REROOT_CATALOG_URI": f"sqlite:///{folder}/catalog.db",
            "REROOT_WAREHOUSE_LOCATION": f"file://{self.warehouse}",
        }
        catalog = {**({"REROOT_CATALOG_URI": rest} if rest else own), **changes}
        self.operator = Operator(database, valkey, REROOT_WAREHOUSE=WAREHOUSE, **catalog)
        self.place = Place(control_plane)
        settings = load_settings(dict(self.operator.environment()))
        self.tables: Catalog = tables.pyiceberg_catalog_for(catalog_connection(settings), WAREHOUSE)
        self.runtime = wiring.build(settings, "worker-1")

    def close(self) -> None:
        """Let every connection go."""
        self.runtime.close()
        self.tables.close()

    def dataset(self, *, rows: int = 10) -> str:
        """A dataset with a table of so many rows, and its log row."""
        dataset = self.place.dataset()
        table = tables.make_table(self.tables, self.old(dataset), rows=rows)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        self.place.control_plane.log(dataset, snapshot_id=snapshot.snapshot_id, row_count=rows)
        return dataset

    def old(self, dataset: str) -> TableIdentifier:
        """Its name before a move."""
        return TableIdentifier.within(LEGACY_NAMESPACE, legacy_identifier(dataset).removeprefix(LEGACY_NAMESPACE + "."))

    def new(self, dataset: str) -> TableIdentifier:
        """Its name after it."""
        return TableIdentifier.within(self.place.control_plane.place(self.place.schema), self.old(dataset).name)

    def work(self, dataset: str, times: int = 1) -> str:
        """So many attempts, each when its time has come; where the dataset stands then."""
        for _ in range(times):
            self.place.control_plane.execute(
                "UPDATE reroot.moves SET not_before = now(), resolver_changed_at = now() - interval '1 day'"
                " WHERE dataset_id = %s",
                (dataset,),
            )
            self.runtime.move(dataset)
        return str(self.row(dataset, "state")[0])

    def moved(self, dataset: str, state: str) -> str:
        """Move it: as far as ``flipped``, or to the end."""
        assert self.operator.types("move", "--dataset", dataset).code == 0
        assert self.work(dataset, {"flipped": 1, "done": 2}[state]) == state
        return dataset

    def row(self, dataset: str, columns: str) -> tuple[Any, ...]:
        """Columns of its row in the ledger."""
        found: tuple[Any, ...] = self.place.control_plane.execute(
            f"SELECT {columns} FROM reroot.moves WHERE dataset_id = %s", (dataset,)
        )[0]
        return found

    def rows_read(self, dataset: str) -> int:
        """What a reader finds who asks the resolver."""
        identifier = self.place.control_plane.execute("SELECT reroot.table_identifier(%s)", (dataset,))[0][0]
        namespace, name = identifier.rsplit(".", 1)
        return tables.count_rows(self.tables, TableIdentifier.within(namespace, name))

    def names(self, dataset: str) -> set[TableIdentifier]:
        """Those that the table has."""
        both = {self.old(dataset), self.new(dataset)}
        return {each for each in both if self.tables.table_exists((*each.namespace, each.name))}

    def diverged(self, *, through_old: int = 3, through_new: int = 5) -> str:
        """A dataset of ten rows, parked: after its flip rows were appended through both of its names."""
        dataset = self.moved(self.dataset(), "flipped")
        if through_new:
            tables.append(self.tables, self.new(dataset), rows=through_new)
        if through_old:
            tables.append(self.tables, self.old(dataset), rows=through_old)
        assert self.work(dataset) == "parked"
        assert self.row(dataset, "park_code") == ("diverged",)
        return dataset

    def everything(self) -> list[Any]:
        """Ledger, journal and column, to compare before and after."""
        return [
            self.place.control_plane.execute(f"SELECT * FROM {table} ORDER BY 1")
            for table in ("reroot.moves", "reroot.move_events", "reroot.pointers", "datasets", "iceberg_sync_log")
        ]
