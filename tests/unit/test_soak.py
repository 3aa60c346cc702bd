"""What the soak reads, what it costs, and what it does not let pass: on real tables, damaged in every place."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestContent, ManifestFile, clear_manifest_cache, write_manifest_list

from tests.support.memory_file_io import MemoryFileIO
from tests.support.tables import make_table, rows_from
from worker.identifiers import TableIdentifier
from worker.lakehouse import metadata
from worker.lakehouse.locations import local_path
from worker.lakehouse.port import SoakError, SoakFault, Table
from worker.lakehouse.soak import soak
from worker.lakehouse.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyiceberg.table import Table as WrittenTable

NAME = TableIdentifier(("main", "ventas"), "ds_1")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    opened = SqlCatalog("w", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    yield opened
    opened.close()


def shown(written: WrittenTable) -> Table:
    """The table as a catalog would show it."""
    location = written.metadata_location
    return metadata.table_from(NAME, location, metadata.decode(Storage({}).read(location)), {})


def soaked(written: WrittenTable) -> Storage:
    """Soak a table; what it cost."""
    storage = Storage({})
    soak(shown(written), storage)
    return storage


def refusal(table: Table) -> str:
    with pytest.raises(SoakError) as caught:
        soak(table, Storage({}))
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def fault(table: Table) -> SoakFault:
    with pytest.raises(SoakError) as caught:
        soak(table, Storage({}))
    return caught.value.fault


def on_disk(location: str) -> Path:
    path = local_path(location)
    assert path is not None
    return Path(path)


def manifest_list(written: WrittenTable) -> Path:
    snapshot = written.current_snapshot()
    assert snapshot is not None
    return on_disk(snapshot.manifest_list)


def manifests(written: WrittenTable) -> list[ManifestFile]:
    snapshot = written.current_snapshot()
    assert snapshot is not None
    return list(snapshot.manifests(written.io))


def data_file(written: WrittenTable) -> Path:
    entry = manifests(written)[0].fetch_manifest_entry(written.io)[0]
    return on_disk(entry.data_file.file_path)


def rewrite_metadata(written: WrittenTable, change: Callable[[dict[str, Any]], None]) -> None:
    path = on_disk(written.metadata_location)
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def rewrite_list(written: WrittenTable, lines: list[ManifestFile]) -> None:
    snapshot = written.current_snapshot()
    assert snapshot is not None
    manifest_list(written).unlink()
    output = written.io.new_output(snapshot.manifest_list)
    with write_manifest_list(
        written.format_version, output, snapshot.snapshot_id, None, snapshot.sequence_number, "deflate"
    ) as writer:
        writer.add_manifests(lines)


class TestWholeTables:
    def test_one_metadata_file_one_list_one_manifest_one_data_file(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME, rows=10, snapshots=5)
        storage = soaked(written)
        assert storage.opens == 4
        assert storage.bytes_read < 32_000

    def test_the_cost_does_not_grow_with_the_data(self, catalog: SqlCatalog) -> None:
        wide = [(f"c{number}", pa.binary()) for number in range(10)]
        schema = pa.schema([("id", pa.int64()), *wide])
        written = catalog_table(catalog, schema)
        blobs = [pa.array([os.urandom(1000) for _ in range(3000)], pa.binary()) for _ in wide]
        written.append(pa.table([pa.array(range(3000), pa.int64()), *blobs], schema=schema))
        assert data_file(written).stat().st_size > 25_000_000
        storage = soaked(written)
        assert storage.opens == 4
        assert storage.bytes_read < 200_000

    def test_of_a_long_column_only_the_first_pages_are_read(self, catalog: SqlCatalog) -> None:
        schema = pa.schema([("id", pa.int64())])
        written = catalog_table(catalog, schema)
        numbers = pa.array((number * 2654435761 % 2**61 for number in range(2_000_000)), pa.int64())
        written.append(pa.table([numbers], schema=schema))
        size = data_file(written).stat().st_size
        assert size > 10_000_000
        assert soaked(written).bytes_read < size / 4

    @pytest.mark.parametrize("keep", [None, 4_000_000])
    def test_a_column_of_more_than_sixteen_megabytes_is_decoded_too(
        self, catalog: SqlCatalog, keep: int | None
    ) -> None:
        schema = pa.schema([("blob", pa.binary())])
        written = catalog_table(catalog, schema)
        blobs = pa.array([os.urandom(1000) for _ in range(20_000)], pa.binary())
        written.append(pa.table([blobs], schema=schema))
        if keep is None:
            soaked(written)
            return
        content = bytearray(data_file(written).read_bytes())
        content[100:keep] = bytes(keep - 100)
        data_file(written).write_bytes(content)
        assert "the data file" in refusal(shown(written))

    def test_no_snapshot(self, catalog: SqlCatalog) -> None:
        storage = soaked(make_table(catalog, NAME, snapshots=0))
        assert storage.opens == 1

    def test_no_rows(self, catalog: SqlCatalog) -> None:
        soaked(make_table(catalog, NAME, rows=0))

    def test_no_files_left(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME, snapshots=2)
        written.delete()
        assert soaked(written).opens == 2

    def test_some_rows_deleted(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME, rows=10, snapshots=2)
        written.delete("number = 3")
        soaked(written)

    def test_delete_files_are_not_counted_as_rows(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        lines = manifests(written)
        deletes = manifests_again(written)[0]
        deletes[3] = ManifestContent.DELETES
        rewrite_list(written, [deletes, *lines])
        soaked(written)

    def test_branches_and_tags(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME, snapshots=2)
        first = written.metadata.snapshots[0].snapshot_id
        written.manage_snapshots().create_tag(first, "start").create_branch(first, "audit").commit()
        written.append(rows_from(0, 3), branch="audit")
        assert shown(written).row_count == 20
        soaked(written)

    @pytest.mark.parametrize("version", ["1", "2"])
    def test_format_versions(self, catalog: SqlCatalog, version: str) -> None:
        written = make_table(catalog, NAME, snapshots=2, properties={"format-version": version})
        assert shown(written).format_version == int(version)
        assert soaked(written).opens == 4

    def test_format_version_3(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        rewrite_metadata(written, lambda document: document.update({"format-version": 3, "next-row-id": 10}))
        assert shown(written).format_version == 3
        soaked(written)

    def test_manifests_named_in_the_metadata_itself(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME, properties={"format-version": "1"})
        paths = [line.manifest_path for line in manifests(written)]

        def inline(document: dict[str, Any]) -> None:
            del document["snapshots"][0]["manifest-list"]
            document["snapshots"][0]["manifests"] = paths

        rewrite_metadata(written, inline)
        assert soaked(written).opens == 3

    def test_a_summary_without_counts(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        rewrite_metadata(written, lambda document: document["snapshots"][0]["summary"].pop("total-records"))
        assert shown(written).row_count is None
        soaked(written)

    @pytest.mark.parametrize("told", ["11", "0", "-1"])
    def test_a_summary_that_counts_other_rows_than_the_list_is_a_warning(self, catalog: SqlCatalog, told: str) -> None:
        written = make_table(catalog, NAME, rows=10)
        rewrite_metadata(written, lambda document: document["snapshots"][0]["summary"].update({"total-records": told}))
        warnings = soak(shown(written), Storage({}))
        assert warnings == (f"the snapshot's summary says {told} rows, its manifest list 10",)

    def test_a_list_without_counts(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME, snapshots=2, properties={"format-version": "1"})
        lines = manifests(written)
        for line, position in itertools.product(lines, COUNTS):
            line[position] = None
        rewrite_list(written, lines)
        assert {line.existing_rows_count for line in manifests_again(written)} == {None}
        soaked(written)

    def test_compressed_metadata(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        path = on_disk(written.metadata_location)
        path.write_bytes(gzip.compress(path.read_bytes()))
        soaked(written)

    def test_partitions_and_nested_columns(self, catalog: SqlCatalog) -> None:
        nested = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
        schema = pa.schema([("kind", pa.string()), ("deep", nested)])
        written = catalog_table(catalog, schema)
        written.update_spec().add_identity("kind").commit()
        rows = [{"kind": kind, "deep": {"a": 1, "b": ["x", "y"]}} for kind in ("red", "blue")]
        written.append(pa.Table.from_pylist(rows, schema=schema))
        assert soaked(written).opens == 4

    def test_a_location_that_ends_with_a_slash(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        table = shown(written)
        soak(replace(table, location=table.location + "/"), Storage({}))


def catalog_table(catalog: SqlCatalog, schema: pa.Schema) -> WrittenTable:
    catalog.create_namespace_if_not_exists(NAME.namespace)
    return catalog.create_table((*NAME.namespace, NAME.name), schema)


def manifests_again(written: WrittenTable) -> list[ManifestFile]:
    clear_manifest_cache()
    return manifests(written)


COUNTS = range(7, 13)
"""The places of a manifest list's line that hold counts of files and rows."""

DIFFERENT: Mapping[str, Mapping[str, Any]] = {
    "uuid": {"uuid": "00000000-0000-0000-0000-000000000000"},
    "current snapshot": {"snapshot_id": 1},
    "format version": {"format_version": 1},
    "location": {"location": "file:///elsewhere"},
}


class TestWhatDoesNotPass:
    @pytest.mark.parametrize("what", DIFFERENT)
    def test_a_catalog_that_says_something_else_than_the_file(self, catalog: SqlCatalog, what: str) -> None:
        table = shown(make_table(catalog, NAME))
        assert what in refusal(replace(table, **DIFFERENT[what]))

    def test_a_missing_metadata_file(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        table = shown(written)
        on_disk(written.metadata_location).unlink()
        assert "the metadata file" in refusal(table)

    @pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\x1f\x8b broken", b'{"format-version": 2', b"\xff\xfe"])
    def test_a_damaged_metadata_file(self, catalog: SqlCatalog, content: bytes) -> None:
        written = make_table(catalog, NAME)
        table = shown(written)
        on_disk(written.metadata_location).write_bytes(content)
        assert "cannot be understood" in refusal(table)

    def test_a_missing_manifest_list(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        manifest_list(written).unlink()
        assert "the manifest list" in refusal(shown(written))

    def test_a_missing_manifest(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        on_disk(manifests(written)[0].manifest_path).unlink()
        assert "the manifest " in refusal(shown(written))

    @pytest.mark.parametrize("keep", [0, 3, 40, -1, -20])
    def test_a_cut_manifest_list(self, catalog: SqlCatalog, keep: int) -> None:
        written = make_table(catalog, NAME)
        path = manifest_list(written)
        path.write_bytes(path.read_bytes()[:keep])
        assert "the manifest list" in refusal(shown(written))

    @pytest.mark.parametrize("keep", [0, 40, -1])
    def test_a_cut_manifest(self, catalog: SqlCatalog, keep: int) -> None:
        written = make_table(catalog, NAME)
        path = on_disk(manifests(written)[0].manifest_path)
        path.write_bytes(path.read_bytes()[:keep])
        assert "the manifest " in refusal(shown(written))

    def test_a_missing_data_file(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        data_file(written).unlink()
        assert "the data file" in refusal(shown(written))

    @pytest.mark.parametrize("keep", [0, 4, -8])
    def test_a_cut_data_file(self, catalog: SqlCatalog, keep: int) -> None:
        written = make_table(catalog, NAME)
        path = data_file(written)
        path.write_bytes(path.read_bytes()[:keep])
        assert "cannot be read" in refusal(shown(written))

    def test_a_data_file_whose_pages_are_damaged(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        path = data_file(written)
        content = bytearray(path.read_bytes())
        content[4:200] = os.urandom(196)
        path.write_bytes(content)
        assert "the data file" in refusal(shown(written))

    def test_a_data_file_of_another_length(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME, rows=10)
        other = make_table(catalog, replace(NAME, name="ds_2"), rows=11)
        data_file(written).write_bytes(data_file(other).read_bytes())
        assert "has 11 rows, its manifest says 10" in refusal(shown(written))

    def test_a_current_snapshot_that_is_not_there(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        table = shown(written)
        rewrite_metadata(written, lambda document: document.update({"snapshots": []}))
        assert "is not among its snapshots" in refusal(table)

    @pytest.mark.parametrize("path", ["file:///dev/zero", "FILE:///dev/zero", "/dev/zero", "/dev/stdin"])
    def test_a_manifest_list_that_never_ends(self, catalog: SqlCatalog, path: str) -> None:
        written = make_table(catalog, NAME)
        rewrite_metadata(written, lambda document: document["snapshots"][0].update({"manifest-list": path}))
        assert refusal(shown(written)) == f"the manifest list {path} cannot be read: it is no regular file"

    def test_a_path_on_the_workers_disk_in_a_warehouse_that_lies_elsewhere(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        path = manifest_list(written)
        MemoryFileIO.files["memory://lake/m.json"] = on_disk(written.metadata_location).read_bytes()
        table = replace(shown(written), metadata_location="memory://lake/m.json")
        with pytest.raises(SoakError, match=rf"the manifest list file://{path} .* local disk") as caught:
            soak(table, Storage({"py-io-impl": "tests.support.memory_file_io.MemoryFileIO"}, local=False))
        MemoryFileIO.files.clear()
        assert caught.value.fault is SoakFault.UNSUPPORTED

    def test_metadata_that_grows_beyond_measure(self, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
        written = make_table(catalog, NAME)
        table = shown(written)
        monkeypatch.setattr(metadata, "LARGEST", 1_000_000)
        on_disk(written.metadata_location).write_bytes(gzip.compress(b" " * 1_000_001 + b"{}"))
        assert "decompressed it has more than 1,000,000 bytes" in refusal(table)

    def test_a_data_file_larger_than_its_manifest_says_is_not_read_whole(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        with data_file(written).open("ab") as file:
            file.truncate(3_000_000_000)
        storage = Storage({})
        with pytest.raises(SoakError, match="cannot be read"):
            soak(shown(written), storage)
        assert storage.bytes_read < 1_000_000

    def test_a_file_that_this_client_may_not_read(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        table = shown(written)
        path = on_disk(written.metadata_location)
        path.unlink()
        path.mkdir()  # even root cannot read a folder
        assert "cannot be read" in refusal(table)


class TestWhatOnlyOurReaderCannotRead:
    def test_a_map_whose_keys_are_optional(self, catalog: SqlCatalog) -> None:
        schema = pa.schema([pa.field("tags", pa.map_(pa.string(), pa.int64()))])
        written = catalog_table(catalog, schema)
        written.append(pa.table({"tags": [[("x", 1)]]}, schema=schema))
        path = data_file(written)
        # The key's place in the footer: its repetition, required, and its name.
        path.write_bytes(path.read_bytes().replace(b"\x25\x00\x18\x03key", b"\x25\x02\x18\x03key"))
        assert fault(shown(written)) is SoakFault.UNSUPPORTED
        warnings = soak(shown(written), Storage({}), accept_unsupported=True)
        assert len(warnings) == 1
        assert warnings[0].startswith(f"accepted by an operator: the data file file://{path} cannot be read")

    def test_an_encrypted_manifest_list(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        manifest_list(written).write_bytes(b"AGS1" + os.urandom(1000))
        assert fault(shown(written)) is SoakFault.UNSUPPORTED
        assert "it is encrypted" in soak(shown(written), Storage({}), accept_unsupported=True)[0]

    def test_what_is_damaged_stays_damaged_whatever_was_accepted(self, catalog: SqlCatalog) -> None:
        written = make_table(catalog, NAME)
        data_file(written).unlink()
        with pytest.raises(SoakError) as caught:
            soak(shown(written), Storage({}), accept_unsupported=True)
        assert caught.value.fault is SoakFault.MISSING
