"""What a soak reads of manifest lists and manifests.

Responsible for: the field ids of the Iceberg specification and the two values made of them.
Must not know: storage, what is then done with a data file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from worker.lakehouse.avro import AvroFile, Fields, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATH, _LENGTH, _LIST_CONTENT = 500, 501, 517
_ADDED_FILES, _EXISTING_FILES = 504, 505
_ADDED_ROWS, _EXISTING_ROWS = 512, 513

_STATUS, _DATA_FILE = 0, 2
_FILE_PATH, _FILE_FORMAT, _RECORD_COUNT, _FILE_SIZE = 100, 101, 103, 104
_KEY_METADATA, _CONTENT, _OFFSET, _SIZE = 131, 134, 144, 145

_STATUS_DELETED: Final = 2


class Content(IntEnum):
    """What a file holds. Format version 1 knows only data, and has no field for it."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


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
    """One live data file, delete file or deletion vector. ``size`` is in bytes."""

    path: str
    format: str
    content: Content
    record_count: int
    size: int
    encrypted: bool
    offset: int | None
    """Where the deletion vector begins in its file, and how many bytes it has; None for other files."""
    length: int | None

    @property
    def kind(self) -> str:
        """What it is called, and told apart by."""
        if self.format == "PUFFIN":
            return "deletion vector"
        return {Content.DATA: "data file", Content.POSITION_DELETES: "position delete file"}.get(
            self.content, "equality delete file"
        )


def manifests(file: BinaryIO) -> list[Manifest]:
    """The lines of a manifest list. Raises ReadError, and whatever else its content provokes."""
    opened = AvroFile(file)
    line = _Names(opened.fields)
    return [
        Manifest(
            path=record[line.fields.name(_PATH)],
            length=record[line.fields.name(_LENGTH)],
            holds_data=line.get(record, _LIST_CONTENT, Content.DATA) == Content.DATA,
            live_files=_sum(line.get(record, _ADDED_FILES), line.get(record, _EXISTING_FILES)),
            live_rows=_sum(line.get(record, _ADDED_ROWS), line.get(record, _EXISTING_ROWS)),
        )
        for record in opened.records()
    ]


def live_files(file: BinaryIO) -> Iterator[DataFile]:
    """The live files of a manifest, read as far as they are asked for. Raises as ``manifests`` does."""
    opened = AvroFile(file)
    status, data_file = opened.fields.name(_STATUS), opened.fields.name(_DATA_FILE)
    names = _Names(opened.fields.inner[_DATA_FILE])
    for record in opened.records():
        if record[status] != _STATUS_DELETED:
            yield _data_file(record[data_file], names)


@dataclass(frozen=True, slots=True)
class _Names:
    fields: Fields

    def get(self, record: Record, field_id: int, default: Any = None) -> Any:
        """An optional field's value; ``default`` where this writer has no such field."""
        name = self.fields.names.get(field_id)
        return default if name is None else record[name]


def _sum(added: int | None, existing: int | None) -> int | None:
    return None if added is None or existing is None else added + existing


def _data_file(record: Record, names: _Names) -> DataFile:
    need = names.fields.name
    return DataFile(
        path=record[need(_FILE_PATH)],
        format=record[need(_FILE_FORMAT)].upper(),
        content=Content(names.get(record, _CONTENT) or Content.DATA),
        record_count=record[need(_RECORD_COUNT)],
        size=record[need(_FILE_SIZE)],
        encrypted=names.get(record, _KEY_METADATA) is not None,
        offset=names.get(record, _OFFSET),
        length=names.get(record, _SIZE),
    )
