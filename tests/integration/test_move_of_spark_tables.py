"""Tables that Spark wrote are moved where they lie, in an object store, and not one object of them changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.lake import Lake
from tests.support.object_store import ObjectStore
from tests.support.spark_tables import NAMES, spark_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.controlplane import ControlPlaneFixture


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def lake(
    database: str, valkey: str, control_plane: ControlPlaneFixture, tmp_path: Path, store: ObjectStore
) -> Iterator[Lake]:
    options = {"REROOT_CATALOG_PROPERTIES": json.dumps(store.options()), "REROOT_WAREHOUSE_LOCATION": store.root}
    opened = Lake(database, valkey, control_plane, tmp_path, **options)
    yield opened
    opened.close()


def given(lake: Lake, store: ObjectStore, name: str) -> str:
    """A dataset whose table is this one of Spark's."""
    table, dataset = spark_table(name), lake.place.dataset()
    for location, content in table.files.items():
        store.client().put_object(Bucket=store.bucket, Key=location.removeprefix(f"{store.root}/"), Body=content)
    lake.tables.create_namespace_if_not_exists(lake.old(dataset).namespace)
    lake.tables.register_table((*lake.old(dataset).namespace, lake.old(dataset).name), table.metadata_location)
    lake.place.control_plane.log(dataset, snapshot_id=None, row_count=None)
    return dataset


def versions(store: ObjectStore) -> dict[str, str]:
    """Every object, with what tells its content."""
    found = store.client().list_objects_v2(Bucket=store.bucket)["Contents"]
    return {entry["Key"]: f"{entry['ETag']} {entry['LastModified']}" for entry in found}


def test_each_is_moved_and_none_of_its_objects_changes(lake: Lake, store: ObjectStore) -> None:
    datasets = {name: given(lake, store, name) for name in NAMES}
    before = versions(store)
    for name, dataset in datasets.items():
        lake.moved(dataset, "done")
        table = lake.tables.load_table((*lake.new(dataset).namespace, lake.new(dataset).name))
        assert table.metadata_location == spark_table(name).metadata_location
        assert lake.names(dataset) == {lake.new(dataset)}
    assert versions(store) == before
    flips = lake.place.control_plane.execute("SELECT detail FROM reroot.move_events WHERE event = 'flipped'")
    assert [detail.get("warnings") for (detail,) in flips] == [None] * len(NAMES)


def test_an_empty_level_in_a_key_waits_for_an_operators_word(lake: Lake, store: ObjectStore) -> None:
    """Spark reads ``s3://lake//x``; pyarrow's client does not."""
    dataset, table = lake.place.dataset(), spark_table("v1_parquet")
    document = json.loads(table.files[table.metadata_location])
    snapshot = document["snapshots"][-1]
    content = table.files[snapshot["manifest-list"]]
    snapshot["manifest-list"] = f"{store.root}/odd//list.avro"
    where = f"{store.root}/odd/1.metadata.json"
    for key, body in (("odd//list.avro", content), ("odd/1.metadata.json", json.dumps(document).encode())):
        store.client().put_object(Bucket=store.bucket, Key=key, Body=body)
    lake.tables.create_namespace_if_not_exists(lake.old(dataset).namespace)
    lake.tables.register_table((*lake.old(dataset).namespace, lake.old(dataset).name), where)
    lake.place.control_plane.log(dataset, snapshot_id=None, row_count=None)
    assert lake.operator.types("move", "--dataset", dataset).code == 0
    assert lake.work(dataset) == "parked"
    assert lake.row(dataset, "park_code") == ("soak_unsupported",)
    assert f"reroot retry {dataset} --accept soak_unsupported" in lake.operator.types("show", dataset).out
    assert lake.operator.types("retry", dataset, "--accept", "soak_unsupported").code == 0
    assert lake.work(dataset, 2) == "done"


def test_one_without_its_deletion_vectors_stays_and_the_file_is_named(lake: Lake, store: ObjectStore) -> None:
    dataset = given(lake, store, "v3_parquet")
    gone = next(location for location in spark_table("v3_parquet").files if location.endswith(".puffin"))
    store.client().delete_object(Bucket=store.bucket, Key=gone.removeprefix(f"{store.root}/"))
    assert lake.operator.types("move", "--dataset", dataset).code == 0
    assert lake.work(dataset) == "queued"
    said = lake.row(dataset, "waiting_for, not_before > now() + interval '2 seconds'")
    assert f"the deletion vector {gone} is not in storage" in said[0]
    assert f"{lake.old(dataset)} cannot be read either" in said[0]
    assert said[1]
