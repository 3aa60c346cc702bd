"""A workspace with one schema, to put datasets into.

Responsible for: the few lines that every test of planning begins with.
Must not know: what Reroot does with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.controlplane import ControlPlaneFixture


class Place:
    """One workspace, one catalog, one schema."""

    def __init__(self, control_plane: ControlPlaneFixture, catalog: str = "Sales", schema: str = "Europe") -> None:
        self.control_plane = control_plane
        self.workspace = control_plane.workspace()
        self.catalog = control_plane.catalog(self.workspace, catalog)
        self.schema = control_plane.schema(self.catalog, schema)

    def dataset(self, *identifiers: str | None, schema: str | None = "") -> str:
        """A dataset with one succeeded log row (snapshot 11, seven rows) per identifier; None: its own legacy one."""
        dataset = self.control_plane.dataset(self.workspace, self.schema if schema == "" else schema)
        for identifier in identifiers:
            self.control_plane.log(dataset, iceberg_table=identifier, snapshot_id=11, row_count=7)
        return dataset

    def datasets(self, number: int) -> list[str]:
        """So many that can move, in the plan's order."""
        return sorted(self.dataset(None) for _ in range(number))
