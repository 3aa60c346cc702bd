"""What the protocol reads of a table's metadata, decoded without the rest.

Responsible for: the few fields of an Iceberg metadata document (format versions 1 to 3) and the ``Table`` made of
them. A document of 3 MB costs milliseconds because nothing else of it is built.
Must not know: where the document came from, a catalog's answer or a file.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from worker.lakehouse import cleaning
from worker.lakehouse.locations import normalise
from worker.lakehouse.port import Snapshot, SoakFault, Table
from worker.lakehouse.reading import ReadError
from worker.lakehouse.storage import LARGEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.identifiers import TableIdentifier

_GZIP: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_NO_SNAPSHOT: Final = -1
"""What older writers put where there is no current snapshot."""


class MetadataError(ValueError):
    """A document that is not the metadata of an Iceberg table; the text says what is wrong with it."""


class SnapshotDocument(msgspec.Struct, frozen=True):
    """One snapshot. The summary stays undecoded: thousands of them are read, one is looked into."""

    snapshot_id: int = msgspec.field(name="snapshot-id")
    manifest_list: str | None = msgspec.field(name="manifest-list", default=None)
    manifests: list[str] | None = None
    """Format version 1 may name its manifests here instead of in a list of their own."""
    timestamp_ms: int = msgspec.field(name="timestamp-ms", default=0)
    summary: msgspec.Raw = msgspec.Raw(b"{}")

    def total_records(self) -> int | None:
        """``total-records`` of the summary; None where the writer did not tell it, or not as a number."""
        return _number(self._told(), "total-records")

    def seen(self) -> Snapshot:
        """The snapshot as a person weighs it."""
        told = self._told()
        return Snapshot(
            id=self.snapshot_id,
            committed_at=self.timestamp_ms / 1000,
            operation=str(told.get("operation", "unknown")),
            rows=_number(told, "total-records"),
            added_rows=_number(told, "added-records"),
            writer=_writer(told),
        )

    def _told(self) -> dict[str, Any]:
        try:
            summary: Any = msgspec.json.decode(self.summary)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}
        return summary if isinstance(summary, dict) else {}


_APPLICATIONS: Final = ("spark.app.id", "trino_query_id", "flink.job-id", "app-id", "carbon.operation-id")


def _writer(told: Mapping[str, Any]) -> str:
    """The engine and its application, job or query, as far as the summary tells them; empty where it tells nothing."""
    engine = " ".join(str(told[name]) for name in ("engine-name", "engine-version") if told.get(name))
    parts = [engine or str(told.get("app-name") or told.get("iceberg-version") or "")]
    parts += [f"{name} {told[name]}" for name in (*_APPLICATIONS, "carbon.principal") if told.get(name)]
    return ", ".join(part for part in parts if part)


def _number(told: Mapping[str, Any], name: str) -> int | None:
    try:
        return int(told[name])
    except (ArithmeticError, KeyError, TypeError, ValueError):
        return None


class LogEntry(msgspec.Struct, frozen=True):
    """An earlier metadata file."""

    metadata_file: str = msgspec.field(name="metadata-file")


class MetadataDocument(msgspec.Struct, frozen=True):
    """The fields that the protocol and the soak need."""

    format_version: int = msgspec.field(name="format-version")
    location: str
    table_uuid: str | None = msgspec.field(name="table-uuid", default=None)
    last_sequence_number: int = msgspec.field(name="last-sequence-number", default=0)
    current_snapshot_id: int | None = msgspec.field(name="current-snapshot-id", default=None)
    snapshots: list[SnapshotDocument] | None = None
    metadata_log: list[LogEntry] | None = msgspec.field(name="metadata-log", default=None)

    def snapshot_id(self) -> int | None:
        """The current snapshot's id; None for a table that has none."""
        return None if self.current_snapshot_id == _NO_SNAPSHOT else self.current_snapshot_id

    def current_snapshot(self) -> SnapshotDocument | None:
        """The current snapshot; None for a table that has none. Raises MetadataError where it is named but absent."""
        wanted = self.snapshot_id()
        if wanted is None:
            return None
        for snapshot in reversed(self.snapshots or ()):
            if snapshot.snapshot_id == wanted:
                return snapshot
        raise MetadataError(f"its current snapshot {wanted} is not among its snapshots")


_DECODER: Final = msgspec.json.Decoder(MetadataDocument)


def decode(content: bytes) -> MetadataDocument:
    """The document in a metadata file, compressed or not. Raises MetadataError; ReadError where it is too large."""
    try:
        return _DECODER.decode(_inflated(content) if content.startswith(_GZIP) else content)
    except ReadError:
        raise
    except Exception as error:
        raise MetadataError(f"not the metadata of an Iceberg table: {cleaning.told(error)}") from error


def _inflated(content: bytes) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    plain = stream.decompress(content, LARGEST)
    if stream.unconsumed_tail:
        raise ReadError(SoakFault.UNSUPPORTED, f"cannot be read: decompressed it has more than {LARGEST:,} bytes")
    if not stream.eof:
        raise MetadataError("its compressed content is truncated")
    return plain


def table_from(
    identifier: TableIdentifier,
    metadata_location: str,
    document: MetadataDocument,
    storage: Mapping[str, str],
) -> Table:
    """The table that a document describes. Raises MetadataError where nothing in it tells one table from another."""
    if not document.table_uuid:
        raise MetadataError("its metadata holds no uuid, so that no two tables can be told apart")
    snapshot = document.current_snapshot()
    return Table(
        identifier=identifier,
        uuid=document.table_uuid.lower(),
        metadata_location=normalise(metadata_location),
        location=normalise(document.location),
        format_version=document.format_version,
        sequence_number=document.last_sequence_number,
        snapshot_id=document.snapshot_id(),
        row_count=0 if snapshot is None else snapshot.total_records(),
        metadata_log=frozenset(normalise(entry.metadata_file) for entry in document.metadata_log or ()),
        snapshot_ids=frozenset(entry.snapshot_id for entry in document.snapshots or ()),
        storage=storage,
    )
