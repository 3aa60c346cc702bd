"""The small Avro reader says what pyiceberg's own says, for whatever schema and codec, and tells damage from data."""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tables import make_table
from worker.identifiers import TableIdentifier
from worker.lakehouse import avro, manifests

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SYNC = b"0123456789abcdef"


def long(number: int) -> bytes:
    """A zigzag number of variable length, as the specification writes it."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return long(len(raw)) + raw


def encode(schema: Any, value: Any) -> bytes:
    """A value in Avro's binary form: an encoder of this test's own, written after the specification."""
    if isinstance(schema, list):
        index = 0 if value is None else 1
        return long(index) + encode(schema[index], value)
    kind = schema["type"] if isinstance(schema, dict) else schema
    return ENCODERS[kind](schema, value)


def encode_array(schema: Any, value: list[Any]) -> bytes:
    items = b"".join(encode(schema["items"], item) for item in value)
    # A negative count is followed by the block's length in bytes: writers may use either.
    return (long(-len(value)) + long(len(items)) + items if value else b"") + b"\0"


def encode_map(schema: Any, value: dict[str, Any]) -> bytes:
    pairs = b"".join(text(key) + encode(schema["values"], item) for key, item in value.items())
    return (long(len(value)) + pairs if value else b"") + b"\0"


ENCODERS: dict[str, Callable[[Any, Any], bytes]] = {
    "null": lambda _, __: b"",
    "boolean": lambda _, value: b"\1" if value else b"\0",
    "int": lambda _, value: long(value),
    "long": lambda _, value: long(value),
    "double": lambda _, value: struct.pack("<d", value),
    "float": lambda _, value: struct.pack("<f", value),
    "string": lambda _, value: text(value),
    "bytes": lambda _, value: text(value),
    "fixed": lambda _, value: bytes(value),
    "record": lambda schema, value: b"".join(encode(part["type"], value[part["name"]]) for part in schema["fields"]),
    "array": encode_array,
    "map": encode_map,
}


def deflate(block: bytes) -> bytes:
    squeezed = zlib.compressobj(wbits=-15)
    return squeezed.compress(block) + squeezed.flush()


def snappy(block: bytes) -> bytes:
    return bytes(pa.compress(block, codec="snappy", asbytes=True)) + struct.pack(">I", zlib.crc32(block))


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": deflate,
    "snappy": snappy,
    "zstandard": lambda block: bytes(pa.compress(block, codec="zstd", asbytes=True)),
}


def file_of(schema: Any, values: list[Any], codec: str = "null", *, per_block: int = 2) -> bytes:
    meta = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    header = b"Obj\x01" + long(len(meta)) + b"".join(text(name) + text(value) for name, value in meta.items()) + b"\0"
    content = header + SYNC
    for start in range(0, len(values), per_block):
        part = values[start : start + per_block]
        block = CODECS[codec](b"".join(encode(schema, value) for value in part))
        content += long(len(part)) + long(len(block)) + block + SYNC
    return content


def field(number: int, schema: Any) -> dict[str, Any]:
    return {"name": f"f{number}", "type": schema, "field-id": number}


PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
}


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema, and what makes values of it."""
    kinds = [*PRIMITIVES, "fixed", "optional", *(["array", "map", "record"] if depth else [])]
    kind = draw(st.sampled_from(kinds))
    if kind in PRIMITIVES:
        return kind, PRIMITIVES[kind]
    if kind == "fixed":
        return {"type": "fixed", "name": f"x{draw(st.integers(0, 10**9))}", "size": 4}, st.binary(
            min_size=4, max_size=4
        )
    schema, values = draw(typed_values(max(0, depth - 1)))
    if kind == "optional":
        return (schema, values) if isinstance(schema, list) else (["null", schema], st.none() | values)
    if kind == "array":
        return {"type": "array", "items": schema}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "map", "values": schema}, st.dictionaries(st.text(max_size=5), values, max_size=3)
    name = f"r{draw(st.integers(0, 10**9))}"
    return {"type": "record", "name": name, "fields": [field(50, schema)]}, st.fixed_dictionaries({"f50": values})


@st.composite
def record_files(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    columns = draw(st.lists(typed_values(), min_size=1, max_size=5))
    schema = {
        "type": "record",
        "name": "row",
        "fields": [field(number, column) for number, (column, _) in enumerate(columns)],
    }
    row = st.fixed_dictionaries({f"f{number}": values for number, (_, values) in enumerate(columns)})
    return schema, draw(st.lists(row, max_size=5))


@given(record_files(), st.sampled_from([*CODECS]), st.data())
@settings(max_examples=150, deadline=None)
def test_any_field_is_found_among_any_others(written: tuple[Any, list[Any]], codec: str, data: st.DataObject) -> None:
    schema, values = written
    simple = {
        number
        for number, column in enumerate(schema["fields"])
        if isinstance(column["type"], str) or column["type"] == ["null", "long"]
    }
    wanted = data.draw(st.frozensets(st.sampled_from(sorted(simple)))) if simple else frozenset()
    found = list(avro.records(file_of(schema, values, codec), wanted))
    assert found == [{number: value[f"f{number}"] for number in wanted} for value in values]


ROW = {"type": "record", "name": "row", "fields": [field(1, "string"), field(2, "long")]}
ROWS = [{"f1": "a", "f2": 1}, {"f1": "b", "f2": -2}, {"f1": "c", "f2": 3}]


@given(st.integers(0, 400), st.binary(min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_damage_is_told_or_harmless_and_never_anything_else(at: int, noise: bytes) -> None:
    content = bytearray(file_of(ROW, ROWS, "deflate"))
    content[at : at + len(noise)] = noise
    try:
        list(avro.records(bytes(content), frozenset({1, 2})))
    except avro.AvroError:
        return


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_told(codec: str) -> None:
    content = file_of(ROW, ROWS, codec, per_block=3)
    whole = len(content)
    header = content.index(SYNC) + len(SYNC)
    for length in (length for length in range(whole) if length != header):
        with pytest.raises(avro.AvroError):
            list(avro.records(content[:length], frozenset({1, 2})))


def test_an_unknown_codec_is_named() -> None:
    content = file_of(ROW, ROWS).replace(b"\x08null", b"\x08lz4 ", 1)
    with pytest.raises(avro.AvroError, match="lz4"):
        list(avro.records(content, frozenset({1})))


def test_a_type_is_referred_to_by_its_name() -> None:
    inner = {"type": "record", "name": "inner", "fields": [field(7, "long")]}
    schema = {"type": "record", "name": "row", "fields": [field(1, inner), field(2, "inner")]}
    content = file_of({**schema, "fields": [field(1, inner), field(2, inner)]}, [{"f1": {"f7": 4}, "f2": {"f7": 5}}])
    before, after = json.dumps(field(2, inner)), json.dumps(field(2, "inner"))
    text_before = json.dumps({**schema, "fields": [field(1, inner), field(2, inner)]}).encode()
    content = content.replace(text(text_before), text(text_before.decode().replace(before, after)))
    assert list(avro.records(content, frozenset({1, 2, 7}))) == [{1: {7: 4}, 2: {7: 5}}]


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("codec", ["gzip", "null"])
def test_manifests_are_read_as_pyiceberg_reads_them(tmp_path: Path, version: str, codec: str) -> None:
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - only here

    catalog = SqlCatalog("w", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/warehouse")
    properties = {"format-version": version, "write.avro.compression-codec": codec}
    table = make_table(catalog, TableIdentifier(("a",), "t"), snapshots=3, properties=properties)
    table.delete("number = 3")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    theirs = snapshot.manifests(table.io)
    ours = manifests.manifests(table.io.new_input(snapshot.manifest_list).open().read())
    assert [(line.path, line.length, line.live_rows, line.live_files) for line in ours] == [
        (
            line.manifest_path,
            line.manifest_length,
            (line.added_rows_count or 0) + (line.existing_rows_count or 0),
            (line.added_files_count or 0) + (line.existing_files_count or 0),
        )
        for line in theirs
    ]
    for line in theirs:
        files = list(manifests.live_files(table.io.new_input(line.manifest_path).open().read()))
        assert [(file.path, file.format, file.record_count, file.size) for file in files] == [
            (entry.data_file.file_path, "PARQUET", entry.data_file.record_count, entry.data_file.file_size_in_bytes)
            for entry in line.fetch_manifest_entry(table.io)
        ]
    catalog.close()
