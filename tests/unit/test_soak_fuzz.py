"""Whatever tenants write: nothing but CatalogError leaves a load, and nothing but SoakError a soak."""

from __future__ import annotations

import io
import json
import random
from contextlib import suppress
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from tests.support.memory_file_io import MemoryFileIO
from tests.support.spark_tables import NAMES, SparkTable, spark_table
from worker.identifiers import TableIdentifier
from worker.lakehouse import metadata
from worker.lakehouse.connection import CatalogConnection, CatalogType
from worker.lakehouse.history import snapshots
from worker.lakehouse.port import CatalogError, SoakError, Table
from worker.lakehouse.rest import RestCatalog
from worker.lakehouse.rest_wire import Session
from worker.lakehouse.soak import soak
from worker.lakehouse.sql import Database, SqlLakehouseCatalog
from worker.lakehouse.storage import Storage, Storages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.lakehouse.port import Catalog

NAME = TableIdentifier(("datasets",), "ds_1")
MEMORY = {"py-io-impl": "tests.support.memory_file_io.MemoryFileIO"}
TABLES = {name: spark_table(name) for name in NAMES}
TRIED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

HOSTILE = st.sampled_from(
    [
        "file:///dev/zero", "FILE:///dev/zero", "/dev/zero", "dev/zero", "s3://lake//x", "s3://", "", "foo://x/y",
        "http://[::1", "abfss://c@a.dfs.core.windows.net/x", "s3://lake/spark", "\0", "s3://lake/\ud800",
    ]
)  # fmt: skip
"""Locations that were seen to end otherwise than by an error of ours, and their kin."""
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | HOSTILE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    yield
    MemoryFileIO.files.clear()


def put(table: SparkTable) -> None:
    MemoryFileIO.files.clear()
    MemoryFileIO.files.update(table.files)


def shown(table: SparkTable) -> Table:
    document = metadata.decode(table.files[table.metadata_location])
    return metadata.table_from(NAME, table.metadata_location, document, {})


def soaked(table: Table) -> None:
    """Soak it strictly and with what an operator may accept. Whether it passes is not the question here."""
    for accept in (False, True):
        with suppress(SoakError):
            soak(table, Storage(MEMORY, local=False), accept_unsupported=accept)


class Watched(Storage):
    """Storage that remembers what was opened."""

    def __init__(self) -> None:
        super().__init__(MEMORY, local=False)
        self.opened: list[str] = []

    def open(self, location: str, **limits: Any) -> Any:
        self.opened.append(location)
        return super().open(location, **limits)


@cache
def read_by_the_soak(name: str) -> tuple[str, ...]:
    """The locations of the files that a soak of the table reads."""
    put(TABLES[name])
    storage = Watched()
    soak(shown(TABLES[name]), storage)
    return tuple(storage.opened)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Cut, or with bytes replaced, left out, repeated or added somewhere."""
    at = draw(st.integers(0, len(content)))
    if draw(st.booleans()):
        return content[:at]
    length = draw(st.integers(0, 40))
    put_in = draw(st.binary(max_size=40) | st.just(content[at : at + length] * 2))
    return content[:at] + put_in + content[at + length :]


@TRIED
@given(st.data())
def test_any_bytes_in_any_file(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    table, location = TABLES[name], data.draw(st.sampled_from(read_by_the_soak(name)))
    put(table)
    MemoryFileIO.files[location] = data.draw(damaged(table.files[location]) | st.binary(max_size=200))
    soaked(shown(table))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in a document."""
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        found += places(below, (*path, key))
    return found


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    copy = json.loads(json.dumps(document))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return copy


DOCUMENT = json.loads(TABLES["v3_upgraded"].files[TABLES["v3_upgraded"].metadata_location])


def loads(catalog: Catalog) -> None:
    """Load the table, and soak what the load shows."""
    try:
        table = catalog.load(NAME)
    except CatalogError:
        return
    soaked(table)
    with suppress(CatalogError):
        snapshots(table, Storage(MEMORY, local=False))


def rest_catalog(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    monkeypatch.setattr(RestCatalog, "_loaded", lambda *_: answer)
    session = Session(CatalogConnection(CatalogType.REST, SecretStr("http://127.0.0.1:1")))
    return RestCatalog("w", session, Storages())


def sql_catalog(location: str, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    opened = SimpleNamespace(load_table=lambda _: SimpleNamespace(metadata_location=location))
    monkeypatch.setattr(SqlLakehouseCatalog, "_opened", lambda _: opened)
    properties = {name: SecretStr(value) for name, value in MEMORY.items()}
    connection = CatalogConnection(CatalogType.SQL, SecretStr("sqlite://"), properties=properties)
    return SqlLakehouseCatalog("w", connection, Database(connection), Storages())


@TRIED
@given(st.sampled_from(places(DOCUMENT)), JSON)
@example(("snapshots", 0, "summary"), {"total-records": 1e999})
@example(("snapshots", 0, "timestamp-ms"), 10**400)
@example(("format-version",), 10**400)
@example(("table-uuid",), [])
def test_any_metadata(monkeypatch: pytest.MonkeyPatch, path: tuple[Any, ...], value: Any) -> None:
    table = TABLES["v3_upgraded"]
    put(table)
    content = json.dumps(changed(DOCUMENT, path, value)).encode()
    MemoryFileIO.files[table.metadata_location] = content
    loads(sql_catalog(table.metadata_location, monkeypatch))
    answer = b'{"metadata-location": "%s", "metadata": %s}' % (table.metadata_location.encode(), content)
    loads(rest_catalog(answer, monkeypatch))


@TRIED
@given(st.binary(max_size=100), HOSTILE)
@example(b'{"unknown": ' + b"[" * 100_000, "")
@example(b"\x1f\x8b" + bytes(40), "")
def test_any_answer_and_any_location(monkeypatch: pytest.MonkeyPatch, content: bytes, location: str) -> None:
    put(TABLES["v1_avro"])
    MemoryFileIO.files["s3://lake/x"] = content
    loads(rest_catalog(content, monkeypatch))
    loads(sql_catalog("s3://lake/x", monkeypatch))
    loads(sql_catalog(location, monkeypatch))
    soaked(replace(shown(TABLES["v1_avro"]), metadata_location=location))


def rewritten(content: bytes, seed: int, value: Any) -> bytes:
    """An Avro file with one value of one record replaced, and perhaps one field id less, as a writer could have it."""
    chance = random.Random(seed)  # noqa: S311 - which value, not a secret
    reader: Any = fastavro.reader(io.BytesIO(content))
    schema, records = reader.writer_schema, list(reader)
    target, fields = chance.choice(records), schema["fields"]
    if "data_file" in target and chance.random() < 0.8:
        kinds = next(field["type"] for field in fields if field["name"] == "data_file")
        target, fields = target["data_file"], kinds["fields"]
    field = chance.choice(fields)
    if chance.random() < 0.2:
        del field["field-id"]
    else:
        target[field["name"]] = value
    out = io.BytesIO()
    fastavro.writer(out, schema, records)
    return out.getvalue()


@TRIED
@given(st.data(), st.integers(), HOSTILE | st.integers(-(2**63), 2**63 - 1) | st.none())
def test_any_value_in_any_manifest(data: st.DataObject, seed: int, value: Any) -> None:
    name = data.draw(st.sampled_from(NAMES))
    table, avro = (
        TABLES[name],
        [each for each in read_by_the_soak(name) if "/metadata/" in each and each.endswith("avro")],
    )
    location = data.draw(st.sampled_from(avro))
    put(table)
    try:
        MemoryFileIO.files[location] = rewritten(table.files[location], seed, value)
    except (ValueError, TypeError, OverflowError, AttributeError):
        return  # not of the field's type: no writer could write it
    soaked(shown(table))
