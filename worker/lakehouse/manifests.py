"""What a soak reads of manifest lists and manifests.

Responsible for: the field ids of the Iceberg specification (names changed between versions, ids did not) and the two
values made of them.
Must not know: storage, what is then done with a data file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from worker.lakehouse import avro

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATH, _LENGTH, _CONTENT = 500, 501, 517
_ADDED_FILES, _EXISTING_FILES = 504, 505
_ADDED_ROWS, _EXISTING_ROWS = 512, 513
_LIST_FIELDS: Final = frozenset({_PATH, _LENGTH, _CONTENT, _ADDED_FILES, _EXISTING_FILES, _ADDED_ROWS, _EXISTING_ROWS})

_STATUS, _DATA_FILE = 0, 2
_FILE_PATH, _FILE_FORMAT, _RECORD_COUNT, _FILE_SIZE = 100, 101, 103, 104
_ENTRY_FIELDS: Final = frozenset({_STATUS, _DATA_FILE, _FILE_PATH, _FILE_FORMAT, _RECORD_COUNT, _FILE_SIZE})

_CONTENT_DATA: Final = 0
_STATUS_DELETED: Final = 2


@dataclass(frozen=True, slots=True)
class Manifest:
    """One line of a manifest list. Counts are None where an old writer did not tell them."""

    path: str
    length: int
    holds_data: bool
    """False: it lists delete files."""
    live_files: int | None
    live_rows: int | None


@dataclass(frozen=True, slots=True)
class DataFile:
    """One live data file. ``size`` is in bytes."""

    path: str
    format: str
    record_count: int
    size: int


def manifests(content: bytes) -> list[Manifest]:
    """The lines of a manifest list. Raises avro.AvroError."""
    return [_manifest(record) for record in avro.records(content, _LIST_FIELDS)]


def live_files(content: bytes) -> Iterator[DataFile]:
    """The live data files of a manifest, read one by one. Raises avro.AvroError."""
    for record in avro.records(content, _ENTRY_FIELDS):
        if record[_STATUS] != _STATUS_DELETED:
            yield _data_file(record[_DATA_FILE])


def _manifest(record: avro.Record) -> Manifest:
    return Manifest(
        path=record[_PATH],
        length=record[_LENGTH],
        # Format version 1 knows no delete files, and no field that tells them apart.
        holds_data=record.get(_CONTENT, _CONTENT_DATA) == _CONTENT_DATA,
        live_files=_sum(record.get(_ADDED_FILES), record.get(_EXISTING_FILES)),
        live_rows=_sum(record.get(_ADDED_ROWS), record.get(_EXISTING_ROWS)),
    )


def _sum(added: int | None, existing: int | None) -> int | None:
    return None if added is None or existing is None else added + existing


def _data_file(record: avro.Record) -> DataFile:
    return DataFile(
        path=record[_FILE_PATH],
        format=record[_FILE_FORMAT].upper(),
        record_count=record[_RECORD_COUNT],
        size=record[_FILE_SIZE],
    )
