"""How files are opened, and what is certain about those that are not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.memory_file_io import MemoryFileIO
from worker.lakehouse.storage import Storage, Storages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REMOTE = {"py-io-impl": "tests.support.memory_file_io.MemoryFileIO", "s3.access-key-id": "vended"}


@pytest.fixture
def memory() -> Iterator[dict[str, bytes]]:
    MemoryFileIO.files.update({"memory://lake/a": b"abcdef"})
    yield MemoryFileIO.files
    MemoryFileIO.files.clear()
    MemoryFileIO.forbidden.clear()
    MemoryFileIO.made_with.clear()


def test_a_local_file_is_opened_directly(tmp_path: Path) -> None:
    (tmp_path / "a b").write_bytes(b"abcdef")
    storage = Storage({"py-io-impl": "no.such.Module"})
    assert storage.read(f"file:{tmp_path}/a b") == b"abcdef"
    assert (storage.opens, storage.bytes_read) == (1, 6)


def test_a_remote_file_is_opened_with_the_options_that_came_with_the_table(memory: dict[str, bytes]) -> None:
    storage = Storage(REMOTE)
    assert storage.read("memory://lake/a") == b"abcdef"
    with storage.open("memory://lake/a") as stream:
        stream.seek(4)
        assert stream.read(10) == b"ef"
        assert stream.tell() == 6
    assert (storage.opens, storage.bytes_read) == (2, 8)
    assert [made["s3.access-key-id"] for made in MemoryFileIO.made_with] == ["vended"]


@pytest.mark.parametrize("location", ["memory://lake/none", "file:///no/such/file"])
def test_a_missing_file_is_told_as_such(memory: dict[str, bytes], location: str) -> None:
    with pytest.raises(FileNotFoundError):
        Storage(REMOTE).read(location)


def test_missing_is_certain_only_beside_a_file_that_is_there(memory: dict[str, bytes]) -> None:
    storage = Storage(REMOTE)
    assert storage.certainly_missing("memory://lake/none", beside="memory://lake/a")
    assert not storage.certainly_missing("memory://lake/a", beside="memory://lake/a")
    assert not storage.certainly_missing("memory://lake/none", beside="memory://lake/gone")


def test_what_may_not_be_looked_at_is_not_missing(memory: dict[str, bytes]) -> None:
    MemoryFileIO.forbidden.add("memory://lake/hidden")
    assert not Storage(REMOTE).certainly_missing("memory://lake/hidden", beside="memory://lake/a")


def test_a_local_folder_that_is_gone_makes_nothing_certain(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    storage = Storage({})
    assert storage.certainly_missing(f"file://{tmp_path}/none", beside=f"file://{tmp_path}/there")
    assert not storage.certainly_missing("file:///no/mount/none", beside="file:///no/mount/there")


def test_one_storage_for_one_set_of_options_and_not_for_ever() -> None:
    storages = Storages()
    first = storages.with_options({"a": "1"})
    assert storages.with_options({"a": "1"}) is first
    assert storages.with_options({"a": "2"}) is not first
    for number in range(100):
        storages.with_options({"b": str(number)})
    assert storages.with_options({"a": "1"}) is not first
