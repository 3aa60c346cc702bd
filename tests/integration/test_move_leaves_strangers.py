"""What the control plane does not know, and what is no table, stays as it is: on a real server that has both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

from tests.support import tables
from tests.support.catalog_fixtures import rest_server, rest_servers
from tests.support.lake import Lake
from worker.identifiers import LEGACY_NAMESPACE, TableIdentifier
from worker.lakehouse.locations import normalise

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.controlplane import ControlPlaneFixture
    from tests.support.rest_server import RestServer

__all__ = ["rest_server", "rest_servers"]


@pytest.fixture
def lake(
    database: str, valkey: str, control_plane: ControlPlaneFixture, tmp_path: Path, rest_server: RestServer
) -> Iterator[Lake]:
    lake = Lake(database, valkey, control_plane, tmp_path, rest=rest_server.uri)
    yield lake
    lake.close()


def make_view(lake: Lake, namespace: tuple[str, ...], name: str) -> None:
    """A view, as an engine makes it."""
    tables.make_namespaces(lake.tables, namespace)
    sql = SQLViewRepresentation(type="sql", sql="SELECT 1 AS number", dialect="spark")
    version = ViewVersion(
        version_id=1,
        timestamp_ms=0,
        schema_id=1,
        summary={},
        representations=[sql],
        default_namespace=list(namespace),
    )
    lake.tables.create_view((*namespace, name), tables.SCHEMA, version)


def everything(lake: Lake, namespace: tuple[str, ...]) -> tuple[Any, Any]:
    """Tables with their metadata locations, and views."""
    names = lake.tables.list_tables(namespace)
    locations = {name: normalise(lake.tables.load_table(name).metadata_location) for name in names}
    return locations, sorted(lake.tables.list_views(namespace))


def test_views_and_unknown_tables_stay_where_they_are(lake: Lake) -> None:
    dataset = lake.dataset()
    place = lake.new(dataset).namespace
    for namespace in ((LEGACY_NAMESPACE,), place):
        tables.make_table(lake.tables, TableIdentifier(namespace, f"orphan_{dataset[:8]}"))
        make_view(lake, namespace, f"report_{dataset[:8]}")
    legacy, placed = everything(lake, (LEGACY_NAMESPACE,)), everything(lake, place)
    own = (*lake.old(dataset).namespace, lake.old(dataset).name)
    moved = legacy[0].pop(own)
    assert "orphan" not in lake.operator.types("plan", "--json").out
    lake.moved(dataset, "done")
    assert everything(lake, (LEGACY_NAMESPACE,)) == legacy
    placed[0][*place, lake.old(dataset).name] = moved
    assert everything(lake, place) == placed
    assert lake.operator.types("check").code == 0


def test_a_view_that_has_the_targets_name_parks_the_dataset_and_stays(lake: Lake) -> None:
    dataset = lake.dataset()
    new = lake.new(dataset)
    make_view(lake, new.namespace, new.name)
    lake.operator.types("move", "--dataset", dataset)
    assert lake.work(dataset, 12) == "parked"
    assert lake.row(dataset, "park_code") == ("name_taken",)
    assert lake.tables.view_exists((*new.namespace, new.name))
    assert lake.rows_read(dataset) == 10
