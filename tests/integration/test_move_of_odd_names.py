"""Tables with names as people give them, from the plan to the end: moved whole, or left untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.support import tables
from tests.support.catalog_fixtures import rest_servers
from tests.support.lake import WAREHOUSE, Lake
from worker.identifiers import LEGACY_NAMESPACE, TableIdentifier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.controlplane import ControlPlaneFixture
    from worker.lakehouse.port import Catalog

__all__ = ["rest_servers"]

NAMES: Final = ["Größe 1.2", "DS_ORDERS", "a?b#c&d", "50%"]
REFUSED: Final = {"1.11.0": {"50%"}}
"""By server: the names that no path may hold there."""


@pytest.fixture(params=["sql", "1.10.1", "1.11.0"])
def lake(
    request: pytest.FixtureRequest, database: str, valkey: str, control_plane: ControlPlaneFixture, tmp_path: Path
) -> Iterator[Lake]:
    rest = ""
    if request.param != "sql":
        rest = request.getfixturevalue("rest_servers").running(request.param, "sqlite").uri
    lake = Lake(database, valkey, control_plane, tmp_path, rest=rest)
    yield lake
    lake.close()


def named(lake: Lake, catalog: Catalog, name: str) -> tuple[str, TableIdentifier, TableIdentifier]:
    """A dataset whose table has this name, here unique on a server that tests share; both of its identifiers."""
    dataset = lake.place.dataset()
    plain = TableIdentifier((LEGACY_NAMESPACE,), f"plain_{dataset[:8]}")
    old = TableIdentifier((LEGACY_NAMESPACE,), f"{name} {dataset[:8]}")
    tables.make_table(lake.tables, plain)
    catalog.rename(plain, old)
    lake.place.control_plane.log(dataset, iceberg_table=str(old))
    return dataset, old, TableIdentifier(lake.new(dataset).namespace, old.name)


def test_they_are_moved_whole_or_not_touched(lake: Lake, request: pytest.FixtureRequest) -> None:
    catalog = lake.runtime.lakehouse.catalog(WAREHOUSE)
    refused = next((names for server, names in REFUSED.items() if server in request.node.name), set())
    for name in NAMES:
        dataset, old, new = named(lake, catalog, name)
        assert lake.operator.types("move", "--dataset", dataset).code == 0
        if name in refused:
            assert lake.work(dataset) == "parked"
            assert lake.row(dataset, "park_code") == ("refused",)
            assert old in list(catalog.list_tables(old.namespace))
            entries = "SELECT count(*) FROM reroot.pointers WHERE dataset_id = %s"
            assert lake.place.control_plane.execute(entries, (dataset,)) == [(0,)]
            assert lake.place.control_plane.iceberg_namespace(dataset) is None
            continue
        assert lake.work(dataset, 2) == "done"
        assert catalog.load(new).row_count == 10
        assert old not in list(catalog.list_tables(old.namespace))
        assert lake.place.control_plane.logged_identifiers(dataset) == [str(new)]
        assert lake.place.control_plane.execute("SELECT reroot.table_identifier(%s)", (dataset,)) == [(str(new),)]
