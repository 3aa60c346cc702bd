"""``reroot show``: one dataset's whole story."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import ledger
from tests.support.operator import Operator
from tests.support.place import Place

if TYPE_CHECKING:
    from tests.support.controlplane import ControlPlaneFixture

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def place(control_plane: ControlPlaneFixture) -> Place:
    return Place(control_plane)


@pytest.fixture
def operator(database: str, valkey: str) -> Operator:
    return Operator(database, valkey)


def test_show_tells_the_whole_story(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    ledger.flip(place.control_plane, dataset)
    ledger.park(place.control_plane, dataset, "diverged")
    place.control_plane.execute(
        "INSERT INTO reroot.pointers (dataset_id, claim, action, namespace, table_name, warehouse, table_uuid,"
        " metadata_location, sequence_number) VALUES (%s, 2, 'withdraw', 'datasets', 'ds_1', 'w', 'u-1', 's3://m', 4)",
        (dataset,),
    )
    entry = place.control_plane.execute("SELECT id FROM reroot.pointers")[0][0]
    place.control_plane.execute("UPDATE datasets SET name = 'Orders of 2024' WHERE id = %s", (dataset,))
    place.control_plane.execute("UPDATE reroot.moves SET warehouse = 'lake' WHERE dataset_id = %s", (dataset,))
    out = operator.types("show", dataset).out
    name = "ds_" + dataset.replace("-", "")
    for expected in (
        f"{dataset}  parked",
        "name      Orders of 2024",
        f"workspace {place.workspace}",
        "warehouse lake",
        f"legacy    datasets.{name}",
        f"place     sales.europe.{name}",
        f"uuid      {ledger.UUID}",
        "planned (a)  new -> queued",
        "flipped (b)  queued -> flipped",
        "diverged: another table has the name",
        f"Journal entry {entry}, open: withdraw in warehouse w",
        "pointer   datasets.ds_1",
        f"reroot_withdrawn.ds_1__{entry}",
        "location  s3://m",
        f"Next: reroot resolve {dataset} --keep old|new, which shows first what the other side would lose",
    ):
        assert expected in out, out


def test_show_of_what_was_never_ordered_says_what_would_happen(place: Place, operator: Operator) -> None:
    movable, homeless = place.dataset(None), place.dataset(None, schema=None)
    out = operator.types("show", movable).out
    assert "can move" in out
    assert f"Next: reroot move --dataset {movable} --wait" in out
    assert "not planned: no_schema" in operator.types("show", homeless).out


def test_show_of_a_deleted_dataset_still_has_its_story(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    place.control_plane.execute("DELETE FROM iceberg_sync_log WHERE dataset_id = %s", (dataset,))
    place.control_plane.execute("DELETE FROM datasets WHERE id = %s", (dataset,))
    ended = operator.types("show", dataset)
    assert ended.code == 0
    assert f"{dataset}  queued" in ended.out


def test_show_of_something_unknown_is_one_line(operator: Operator) -> None:
    for unknown in (UNKNOWN, "no-id"):
        ended = operator.types("show", unknown)
        assert (ended.code, ended.out) == (1, "")
        assert f"no such dataset: {unknown}" in ended.one_line


def test_the_shape_of_show_json(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    ledger.flip(place.control_plane, dataset)
    assert operator.types("show", dataset, "--json").json()["next"].startswith("start a worker, none is alive")
    ledger.worker_alive(place.control_plane)
    document = operator.types("show", dataset, "--json").json()
    name = "ds_" + dataset.replace("-", "")
    assert (document["dataset_id"], document["state"], document["direction"], document["reason"]) == (
        dataset,
        "flipped",
        "out",
        None,
    )
    assert (document["source"], document["target"]) == (f"datasets.{name}", f"sales.europe.{name}")
    assert document["log"] == {"iceberg_table": f"sales.europe.{name}", "snapshot_id": 11, "row_count": 7}
    assert document["open_entries"] == []
    assert [event["event"] for event in document["events"]] == ["planned", "flipped"]
    assert set(document["ledger"]) >= {"state", "claim", "attempts", "table_uuid", "flipped_at", "park_code"}
    assert document["next"].startswith("nothing: the other pointer goes in")


def test_a_name_cannot_drive_the_terminal(place: Place, operator: Operator) -> None:
    dataset = place.dataset("datasets.x\x1b[2Jy")
    assert "\x1b" not in operator.types("show", dataset).out


def test_show_names_the_warehouse_of_the_settings_before_the_first_attempt(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    operator.settings["REROOT_WAREHOUSE_TEMPLATE"] = "w_{workspace_hex}"
    document = operator.types("show", dataset, "--json").json()
    expected = (place.workspace, "w_" + place.workspace.replace("-", ""))
    assert (document["workspace_id"], document["warehouse"]) == expected
