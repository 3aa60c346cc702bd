"""The snapshots that a table's metadata file remembers, for a person who decides between two names.

Responsible for: reading them from storage. Must not know: what is decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.lakehouse import cleaning, metadata
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind, Snapshot, Table

if TYPE_CHECKING:
    from worker.lakehouse.storage import Storage


def snapshots(table: Table, storage: Storage) -> tuple[Snapshot, ...]:
    """Oldest first. Raises CatalogError where the file cannot be read."""
    try:
        document = metadata.decode(storage.read(table.metadata_location))
        seen = [entry.seen() for entry in document.snapshots or ()]
    except Exception as error:
        text = f"the metadata file {table.metadata_location} cannot be read: {cleaning.told(error)}"
        raise CatalogError(ErrorCode.UNREADABLE, ErrorKind.TRANSIENT, text) from error
    return tuple(sorted(seen, key=lambda snapshot: snapshot.committed_at))
