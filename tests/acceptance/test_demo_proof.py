"""The demo's witness sees what it is there to see: a proof that cannot fail proves nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from demo.__main__ import Demo
from demo.inventory import inventory
from demo.processes import ServiceError
from demo.proof import Found, Reader, listing
from demo.showing import Narrator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = pa.table({"n": [1, 2, None], "s": ["a", None, "c"]})


@pytest.fixture
def reader() -> Iterator[Reader]:
    with Reader() as duckdb:
        yield duckdb


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    folder = tmp_path / "with a space"
    folder.mkdir()
    opened = SqlCatalog("any", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    opened.create_namespace("datasets")
    yield opened
    opened.close()


def written(catalog: SqlCatalog, name: str, *commits: pa.Table) -> str:
    table = catalog.create_table(("datasets", name), ROWS.schema)
    for rows in commits:
        table.append(rows)
    return table.metadata_location


def test_the_same_rows_have_the_same_fingerprint_in_whatever_order(catalog: SqlCatalog, reader: Reader) -> None:
    one = reader.rows(written(catalog, "one", ROWS))
    other = reader.rows(written(catalog, "other", ROWS.slice(2, 1), ROWS.slice(0, 2)))
    assert one == other
    assert one[0] == 3


@pytest.mark.parametrize(
    "changed",
    [
        pa.table({"n": [1, 2, None], "s": ["a", None, "d"]}),
        pa.table({"n": [1, 2, None], "s": ["c", None, "a"]}),
        pa.table({"n": [1, None, 2], "s": ["a", None, "c"]}),
        pa.table({"n": [1, 1, None], "s": ["a", "a", "c"]}),
    ],
    ids=["a value", "values that swapped rows", "a null", "a row twice"],
)
def test_a_change_of_one_value_changes_the_fingerprint(catalog: SqlCatalog, reader: Reader, changed: pa.Table) -> None:
    before, after = reader.rows(written(catalog, "before", ROWS)), reader.rows(written(catalog, "after", changed))
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_a_table_without_a_snapshot_has_no_rows(catalog: SqlCatalog, reader: Reader) -> None:
    assert reader.rows(written(catalog, "empty"))[0] == 0


def test_the_listing_sees_a_changed_byte_a_new_file_and_a_lost_one(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "file"
    file.parent.mkdir()
    file.write_bytes(b"abc")
    before = listing(tmp_path)
    file.write_bytes(b"abd")
    changed = listing(tmp_path)
    (tmp_path / "new").write_bytes(b"")
    more = listing(tmp_path)
    file.unlink()
    less = listing(tmp_path)
    assert len({str(seen) for seen in (before, changed, more, less)}) == 4


def test_rows_that_differ_end_the_demo(monkeypatch: pytest.MonkeyPatch, reader: Reader) -> None:
    demo = object.__new__(Demo)
    demo.say = Narrator()
    demo.before = {"id": Found("datasets.t", "location", 3, "a")}
    monkeypatch.setattr(Demo, "look", lambda *_: {"id": Found("sales.europe.t", "location", 3, "b")})
    with pytest.raises(ServiceError, match=r"sales\.europe\.t does not hold the rows that datasets\.t held"):
        demo.prove(reader)


def test_the_inventory_is_what_the_story_needs() -> None:
    holdings = inventory()
    movable = [one for one in holdings if one.schema is not None and not one.failed]
    assert len(movable) >= 25
    assert len({one.workspace for one in movable}) == 2
    assert len({(one.workspace, one.catalog) for one in movable}) == 3
    schemas = {(one.workspace, one.catalog, one.schema) for one in movable}
    folded = {(workspace, catalog, str(schema).casefold()) for workspace, catalog, schema in schemas}
    assert len(folded) < len(schemas), "twins that differ in capitals alone"
    assert any(len(one.commits) > 1 for one in movable)
    assert any(not one.commits for one in movable)
    assert any(one.delete for one in movable)
    flights = sum(rows.num_rows for one in movable if one.catalog.startswith("Vols") for rows in one.commits)
    assert flights == 336_776
