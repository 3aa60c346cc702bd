"""Tables that Spark wrote pass, whatever their version, format and deletes; with one file damaged, it is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.memory_file_io import MemoryFileIO
from tests.support.spark_tables import NAMES, SparkTable, spark_table
from worker.identifiers import TableIdentifier
from worker.lakehouse import metadata
from worker.lakehouse.port import SoakError, SoakFault
from worker.lakehouse.soak import soak
from worker.lakehouse.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEMORY = {"py-io-impl": "tests.support.memory_file_io.MemoryFileIO"}

READ = {
    "v1": ["the data file", "the manifest", "the manifest list", "the metadata file"],
    "v2": ["the manifest", "the position delete file"],
    "v3": ["the deletion vector", "the manifest"],
    "equality": ["the equality delete file", "the manifest"],
    "v3_upgraded": ["the deletion vector", "the manifest", "the manifest", "the position delete file"],
}
"""What is read of each version, beside what is read of the first; each manifest is one of its own."""
WITHOUT_DELETES = {"v2_branches", "v2_nested"}
"""The branch of the former has some, and no reader of the table opens them."""

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut in half": lambda content: content[: len(content) // 2],
    "cut by one byte": lambda content: content[:-1],
    "empty": lambda _: b"",
    "another file": lambda _: b"PK\x03\x04 this is another file altogether, and long enough to be read as one",
}


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    yield
    MemoryFileIO.files.clear()


class Watched(Storage):
    """Storage that remembers what was opened."""

    def __init__(self) -> None:
        super().__init__(MEMORY, local=False)
        self.opened: list[str] = []

    def open(self, location: str, **limits: Any) -> Any:
        self.opened.append(location)
        return super().open(location, **limits)


def soaked(table: SparkTable) -> tuple[list[str], tuple[str, ...]]:
    """What was opened, and the warnings."""
    MemoryFileIO.files.clear()
    MemoryFileIO.files.update(table.files)
    document = metadata.decode(table.files[table.metadata_location])
    name = TableIdentifier(("datasets",), "ds_1")
    storage = Watched()
    warnings = soak(metadata.table_from(name, table.metadata_location, document, {}), storage)
    return storage.opened, warnings


def refusal(table: SparkTable, location: str, content: bytes | None) -> SoakError:
    """With the content of one file changed, or without it; the catalog still shows the table as it was."""
    document = metadata.decode(table.files[table.metadata_location])
    shown = metadata.table_from(TableIdentifier(("datasets",), "ds_1"), table.metadata_location, document, {})
    MemoryFileIO.files.clear()
    MemoryFileIO.files.update({**table.files, location: content or b""})
    if content is None:
        del MemoryFileIO.files[location]
    with pytest.raises(SoakError) as caught:
        soak(shown, Storage(MEMORY, local=False))
    assert location in str(caught.value)
    return caught.value


def kinds_read(name: str) -> list[str]:
    if name in WITHOUT_DELETES:
        return READ["v1"]
    key = name if name in READ else "equality" if name.endswith("equality") else name[:2]
    return READ["v1"] if key == "v1" else sorted(READ["v1"] + READ[key])


def test_every_version_format_and_kind_of_delete_is_here() -> None:
    formats = ("parquet", "orc", "avro")
    plain = {f"v{version}_{kind}" for version in (1, 2, 3) for kind in formats}
    assert {*plain, *(f"v2_{kind}_equality" for kind in formats), *WITHOUT_DELETES, "v3_upgraded"} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_passes_without_a_warning(name: str) -> None:
    opened, warnings = soaked(spark_table(name))
    assert warnings == ()
    assert len(opened) == len(set(opened)) == len(kinds_read(name))


@pytest.mark.parametrize("name", NAMES)
def test_each_file_that_is_read_is_named_when_it_is_gone_or_damaged(name: str) -> None:
    table = spark_table(name)
    opened, _ = soaked(table)
    kinds = []
    for location in opened:
        gone = refusal(table, location, None)
        assert gone.fault is SoakFault.MISSING
        kinds.append(str(gone).partition(f" {location}")[0])
        for what, damage in DAMAGES.items():
            assert (what, refusal(table, location, damage(table.files[location])).fault) == (what, SoakFault.DAMAGED)
    assert sorted(kinds) == kinds_read(name)
