"""How files are opened, and what is certain about those that are not there."""

from __future__ import annotations

import os
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from tests.support.memory_file_io import MemoryFileIO
from worker.lakehouse.port import SoakFault
from worker.lakehouse.reading import ReadError, read_error
from worker.lakehouse.storage import Storage, Storages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REMOTE = {"py-io-impl": "tests.support.memory_file_io.MemoryFileIO", "s3.access-key-id": "vended"}


@pytest.fixture
def memory() -> Iterator[dict[str, bytes]]:
    MemoryFileIO.made_with.clear()
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
    with pytest.raises(ReadError) as caught:
        Storage(REMOTE).read(location)
    assert (caught.value.fault, caught.value.why) == (SoakFault.MISSING, "is not in storage")


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
    first = storages.with_options({"a": "1"}, local=True)
    assert storages.with_options({"a": "1"}, local=True) is first
    assert storages.with_options({"a": "1"}, local=False) is not first
    assert storages.with_options({"a": "2"}, local=True) is not first
    for number in range(100):
        storages.with_options({"b": str(number)}, local=True)
    assert storages.with_options({"a": "1"}, local=True) is not first


def refusal(location: str, storage: Storage) -> ReadError:
    with pytest.raises(ReadError) as caught:
        storage.read(location)
    return caught.value


ON_DISK = ["file:///etc/hostname", "FILE:///etc/hostname", "/etc/hostname", "file://localhost/etc/hostname"]


@pytest.mark.parametrize("location", [*ON_DISK, "file:///no/such/file"])
def test_this_machines_disk_is_opened_only_for_a_warehouse_that_lies_there(location: str) -> None:
    error = refusal(location, Storage(REMOTE, local=False))
    assert error.fault is SoakFault.UNSUPPORTED
    assert "on a local disk" in error.why
    assert not Storage(REMOTE, local=False).certainly_missing(location, beside=location)


@pytest.mark.parametrize("location", ["relative/path", "", "etc/hostname", " file:///etc/hostname"])
def test_a_path_without_a_root_is_opened_by_nobody(location: str) -> None:
    assert refusal(location, Storage({})).fault is SoakFault.DAMAGED


def test_what_has_no_end_and_what_never_begins_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for location in ("file:///dev/zero", f"file://{tmp_path}/pipe", f"file://{tmp_path}"):
        assert "no regular file" in refusal(location, Storage({})).why


def test_no_more_of_a_file_is_read_than_the_limit(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(5_000_000))
    storage = Storage({})
    with storage.open(f"file://{tmp_path}/large", most=1000) as stream:
        assert len(stream.read(400)) == 400
        tracemalloc.start()
        with pytest.raises(ReadError, match="more than 1,000 bytes") as caught:
            stream.read()
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        tracemalloc.stop()
    assert caught.value.fault is SoakFault.UNSUPPORTED
    assert storage.bytes_read == 1001


@pytest.mark.parametrize("location", ["foo://b/x", "abfss://c@a.dfs.core.windows.net/x", "http://[b/x", "viewfs://h/x"])
def test_a_scheme_without_a_client_is_not_supported_or_no_location(location: str) -> None:
    error = refusal(location, Storage({}))
    assert error.fault is (SoakFault.DAMAGED if "[" in location else SoakFault.UNSUPPORTED)


def test_whatever_a_client_raises_leaves_as_our_error(memory: dict[str, bytes]) -> None:
    class Odd(dict[str, bytes]):
        def __getitem__(self, key: str) -> bytes:
            raise KeyError(key)

    MemoryFileIO.files["memory://lake/odd"] = b""
    original, MemoryFileIO.files = MemoryFileIO.files, Odd(MemoryFileIO.files)
    try:
        assert "KeyError: 'memory://lake/odd'" in refusal("memory://lake/odd", Storage(REMOTE)).why
    finally:
        MemoryFileIO.files = original


SAID = {
    "When reading information for key 'a' in bucket 'b': AWS Error NETWORK_CONNECTION during HeadObject operation:"
    " curlCode: 7, Could not connect to server": SoakFault.OUTAGE,
    "AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate.": SoakFault.OUTAGE,
    "AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response body.": SoakFault.OUTAGE,
    "AWS Error INTERNAL_FAILURE during GetObject operation": SoakFault.OUTAGE,
    "[Errno 5] Input/output error: '/mnt/x'": SoakFault.OUTAGE,
    "AWS Error ACCESS_DENIED during GetObject operation: no identity-based policy allows it": SoakFault.REFUSED,
    "AWS Error UNKNOWN (HTTP status 403) during HeadObject operation": SoakFault.REFUSED,
    "AWS Error SIGNATURE_DOES_NOT_MATCH during GetObject operation": SoakFault.REFUSED,
    "Empty path component in path lake//x": SoakFault.UNSUPPORTED,
    "Map keys must be annotated as required.": SoakFault.UNSUPPORTED,
    "Could not read encrypted metadata, no decryption found in reader's properties": SoakFault.UNSUPPORTED,
    "Parquet magic bytes not found in footer": SoakFault.DAMAGED,
    "Couldn't deserialize thrift: TProtocolException: Invalid data": SoakFault.DAMAGED,
}
"""What pyarrow, and through it object stores, were seen to say."""


@pytest.mark.parametrize("said", SAID)
def test_what_storage_clients_say_tells_an_outage_from_damage(said: str) -> None:
    assert read_error(OSError(said)).fault is SAID[said]


def test_no_signature_of_a_storage_request_is_left_in_the_text() -> None:
    said = "403 GET https://b.s3.amazonaws.com/k?X-Amz-Credential=HUSH&X-Amz-Signature=HUSH&sig=HUSH&se=2"
    assert "HUSH" not in str(read_error(OSError(said)))
    assert "X-Amz-Signature=***" in read_error(OSError(said)).why
