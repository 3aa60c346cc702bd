"""Tables for the benchmarks, thousands in seconds: real ones as far as anybody can tell who reads them.

Responsible for: one table that pyiceberg writes, and copies of its metadata under a uuid and a location of their own,
which share its manifests and its data file; their names in the reference server's database.
Must not know: what is measured with them.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from worker.identifiers import LEGACY_NAMESPACE, TableIdentifier, default_table_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CATALOG_NAME: Final = "reference"
"""The catalog's name in the server's database, as the server was started with."""

_ROWS: Final = 1000

_SPARK_SUMMARY: Final = {
    "spark.app.id": "application_1731000000000_0042",
    "spark.app.name": "ingest-orders-incremental",
    "engine-name": "spark",
    "engine-version": "3.5.6",
    "iceberg-version": "Apache Iceberg 1.10.1 (commit ccb8bc435062171e64bc8b7e5f56e6aed9c5b934)",
    "carbon.operation-id": "3f0c4bb8-6a0e-4f1e-9c9d-3b8a2f6f1c55",
    "carbon.principal": "ingest-service@example.com",
    "changed-partition-count": "3",
    "partition-summaries-included": "true",
    **{
        f"partitions.order_day=2026-11-{day}/region=europe-west": "added-data-files=1,added-records=1000,"
        "added-files-size=46137344"
        for day in (27, 28, 29)
    },
    "total-equality-deletes": "0",
    "total-position-deletes": "0",
}
"""What writers put beside the counts: it is what makes the metadata of old tables large."""


@dataclass(frozen=True, slots=True)
class Born:
    """A dataset's table in the legacy namespace."""

    dataset_id: str
    metadata_location: str
    snapshot_id: int

    @property
    def identifier(self) -> TableIdentifier:
        """Where it was born."""
        return TableIdentifier((LEGACY_NAMESPACE,), default_table_name(self.dataset_id))


class Lake:
    """A folder of tables, and the database in which the reference server keeps their names."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self._folder = folder
        self._database_url = database_url
        self._template = _write_template(folder / "template")
        self.soaked = _soaked_files(self._template)
        """What every table shares, and a soak reads after the metadata file: manifest list, manifest, data file."""

    def bear(self, count: int, *, snapshots: int = 1) -> list[Born]:
        """Make tables and their names in the legacy namespace, which must be there."""
        document = _with_history(self._template, snapshots)
        born = [self._write(document) for _ in range(count)]
        with psycopg.connect(self._database_url) as connection, connection.cursor() as cursor:
            columns = "catalog_name, table_namespace, table_name, metadata_location, iceberg_type"
            with cursor.copy(f"COPY iceberg_tables ({columns}) FROM STDIN") as copy:
                for one in born:
                    where = one.identifier
                    copy.write_row((CATALOG_NAME, where.namespace[0], where.name, one.metadata_location, "TABLE"))
        return born

    def _write(self, document: dict[str, Any]) -> Born:
        dataset_id = str(uuid.uuid4())
        folder = self._folder / LEGACY_NAMESPACE / default_table_name(dataset_id)
        metadata = folder / "metadata" / f"00001-{uuid.uuid4()}.metadata.json"
        metadata.parent.mkdir(parents=True)
        own = {**document, "table-uuid": str(uuid.uuid4()), "location": f"file://{folder}"}
        metadata.write_text(json.dumps(own), encoding="utf-8")
        return Born(dataset_id, f"file://{metadata}", int(document["current-snapshot-id"]))


def _write_template(folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True)
    catalog = SqlCatalog("template", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace(LEGACY_NAMESPACE)
    rows = pa.table({"number": range(_ROWS), "name": [f"name {number}" for number in range(_ROWS)]})
    table = catalog.create_table(f"{LEGACY_NAMESPACE}.template", rows.schema)
    table.append(rows)
    catalog.close()
    with table.io.new_input(table.metadata_location).open() as stream:
        document: dict[str, Any] = json.loads(stream.read())
    return document


def _soaked_files(document: dict[str, Any]) -> tuple[str, ...]:
    from pyiceberg.io import load_file_io  # noqa: PLC0415 - beside the one use
    from pyiceberg.table.snapshots import Snapshot  # noqa: PLC0415 - beside the one use

    storage = load_file_io({})
    snapshot = Snapshot.model_validate(document["snapshots"][-1])
    manifest = snapshot.manifests(storage)[0]
    entry = manifest.fetch_manifest_entry(storage)[0]
    found = (snapshot.manifest_list, manifest.manifest_path, entry.data_file.file_path)
    return tuple(location.removeprefix("file://") for location in found)


def _with_history(document: dict[str, Any], snapshots: int) -> dict[str, Any]:
    """The document with as many snapshots; the last one is the real one."""
    if snapshots == 1:
        return document
    last = document["snapshots"][-1]
    history = list(_ancestors(last, snapshots - 1))
    current = {
        **last,
        "sequence-number": snapshots,
        "parent-snapshot-id": history[-1]["snapshot-id"],
        "summary": {**last["summary"], **_SPARK_SUMMARY},
    }
    log = [{"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in (*history, current)]
    return {**document, "last-sequence-number": snapshots, "snapshots": [*history, current], "snapshot-log": log}


def _ancestors(last: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    parent: dict[str, int] = {}  # a first snapshot has no such field: an empty one is refused
    for number in range(1, count + 1):
        identity = 1_000_000_000_000_000_000 + number * 7_919
        yield {
            **last,
            "snapshot-id": identity,
            **parent,
            "sequence-number": number,
            "timestamp-ms": last["timestamp-ms"] - (count - number + 1) * 60_000,
            "summary": {**last["summary"], **_SPARK_SUMMARY, "total-records": str(number)},
        }
        parent = {"parent-snapshot-id": identity}
