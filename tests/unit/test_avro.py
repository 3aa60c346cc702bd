"""Manifests say the same here as to pyiceberg, whatever the codec, and no length that a file claims is believed."""

from __future__ import annotations

import io
import os
import zlib
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.tables import make_table
from worker.identifiers import TableIdentifier
from worker.lakehouse import avro, manifests
from worker.lakehouse.avro import AvroFile
from worker.lakehouse.port import SoakFault
from worker.lakehouse.reading import ReadError, read_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyiceberg.manifest import ManifestFile

NUMBER = {"name": "number", "type": "long", "field-id": 1}
SYNC = b"0123456789abcdef"


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": list(fields)}


def written(schema: Any, values: list[Any], codec: str = "null") -> bytes:
    """A file as fastavro writes it."""
    out = io.BytesIO()
    fastavro.writer(out, schema, values, codec=codec, sync_marker=SYNC)
    return out.getvalue()


def with_block(schema: Any, count: int, data: bytes, *, codec: str = "null", claims: int | None = None) -> bytes:
    """A file with one block, which may claim to be longer than it is."""
    head = written(schema, []).replace(b"\x08null", bytes([2 * len(codec)]) + codec.encode())
    block = io.BytesIO()
    for number in (count, len(data) if claims is None else claims):
        fastavro.schemaless_writer(block, {"type": "long"}, number)
    return head + block.getvalue() + data + SYNC


def read(content: bytes) -> list[Any]:
    return list(AvroFile(io.BytesIO(content)).records())


def fault(content: bytes) -> SoakFault:
    with pytest.raises((ReadError, EOFError)) as caught:
        read(content)
    return read_error(caught.value).fault


def deflated(content: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(content) + stream.flush()


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": deflated,
    "snappy": lambda block: bytes(pa.compress(block, "snappy", asbytes=True)) + b"\0\0\0\0",
    "zstandard": lambda block: bytes(pa.compress(block, "zstd", asbytes=True)),
}


@pytest.mark.parametrize("codec", CODECS)
def test_every_compression_that_writers_of_manifests_use(codec: str) -> None:
    content = with_block(record(NUMBER), 1000, CODECS[codec](b"\x54" * 1000), codec=codec)
    assert read(content) == [{"number": 42}] * 1000


def test_fields_are_known_by_the_ids_that_the_writer_gave_them() -> None:
    inner = {"name": "odd", "type": ["null", record(NUMBER) | {"name": "inner"}], "field-id": 2}
    fields = AvroFile(io.BytesIO(written(record(NUMBER, inner, {"name": "without", "type": "int"}), []))).fields
    assert (fields.names, fields.inner[2].names) == ({1: "number", 2: "odd"}, {1: "number"})
    with pytest.raises(ReadError, match="no field with the id 500"):
        fields.name(500)


def test_a_date_of_the_year_ten_thousand_is_a_number() -> None:
    day = {"type": "int", "logicalType": "date"}
    assert read(with_block(record({"name": "day", "type": day}), 1, b"\xfe\xff\xff\xff\x0f")) == [{"day": 2**31 - 1}]


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard"])
def test_what_grows_beyond_measure_is_not_decompressed(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "_LARGEST_BLOCK", 100_000)
    assert read(with_block(record(NUMBER), 1, CODECS[codec](bytes(100_000)), codec=codec))
    assert fault(with_block(record(NUMBER), 1, CODECS[codec](bytes(100_001)), codec=codec)) is SoakFault.UNSUPPORTED


@pytest.mark.parametrize("items", ["null", record() | {"name": "empty"}, {"type": "fixed", "name": "f", "size": 0}])
def test_a_list_of_nothing_cannot_claim_any_length(items: Any) -> None:
    schema = record({"name": "l", "type": {"type": "array", "items": items}})
    assert fault(with_block(schema, 1, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0")) is SoakFault.UNSUPPORTED


@pytest.mark.parametrize(("count", "claims"), [(-1, None), (2**60, None), (1, 2**40), (1, -5)])
def test_a_length_that_cannot_be(count: int, claims: int | None) -> None:
    assert fault(with_block(record(NUMBER), count, b"\x54", claims=claims)) is SoakFault.DAMAGED


def test_an_unknown_compression_and_an_encrypted_file_are_no_damage() -> None:
    assert fault(with_block(record(NUMBER), 1, b"\x54", codec="lzma")) is SoakFault.UNSUPPORTED
    assert fault(b"AGS1" + os.urandom(100)) is SoakFault.UNSUPPORTED


def test_a_damaged_mark_between_two_blocks() -> None:
    content = written(record(NUMBER), [{"number": 1}])
    assert fault(content[:-1] + b"x") is SoakFault.DAMAGED


def test_a_manifest_list_and_a_manifest_say_what_pyiceberg_reads_in_them(tmp_path: Path) -> None:
    catalog = SqlCatalog("w", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    table = make_table(catalog, TableIdentifier(("a",), "t"), rows=7, snapshots=3)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    with table.io.new_input(snapshot.manifest_list).open() as stream:
        lines = manifests.manifests(io.BytesIO(stream.read()))
    expected: list[ManifestFile] = snapshot.manifests(table.io)
    assert [(line.path, line.length, line.live_rows) for line in lines] == [
        (line.manifest_path, line.manifest_length, line.added_rows_count) for line in expected
    ]
    with table.io.new_input(lines[0].path).open() as stream:
        files = list(manifests.live_files(io.BytesIO(stream.read())))
    entry = expected[0].fetch_manifest_entry(table.io)[0].data_file
    assert [(f.path, f.format, f.record_count, f.size, f.kind, f.encrypted) for f in files] == [
        (entry.file_path, "PARQUET", 7, entry.file_size_in_bytes, "data file", False)
    ]
    catalog.close()
