"""What the jobs need from a catalog, and nothing more.

Responsible for: the values that a catalog answers with, the errors that it fails with, the Protocol that every
adapter keeps (``tests/contract`` runs one suite on all of them, the in-memory double included).
Must not know: which catalog it is, HTTP, pyiceberg.

Rules that every adapter keeps:

* ``load`` asks the catalog afresh each time; nothing is cached.
* Locations are normalised (``file:/x`` and ``file:///x`` are one place) and come from a GET, never from a commit.
* A call that changes something is sent once. GET and HEAD may be sent again.
* ``drop`` never purges; it says ``purgeRequested=false`` explicitly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from worker.lakehouse.cleaning import cleaned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from worker.identifiers import TableIdentifier


class ErrorKind(StrEnum):
    """What a caller can know after an error."""

    TRANSIENT = "transient"
    """It was not done, and a later try may succeed."""
    PERMANENT = "permanent"
    """It was not done, and trying again changes nothing."""
    UNKNOWN = "unknown"
    """It may have been done. Look at the names and compare."""


class ErrorCode(StrEnum):
    """What went wrong, in our words."""

    TABLE_MISSING = "table_missing"
    NAMESPACE_MISSING = "namespace_missing"
    FILE_MISSING = "file_missing"
    """The catalog knows the name, its metadata file is gone; the answer had the *type* of a missing file."""
    ALREADY_EXISTS = "already_exists"
    HIDDEN = "hidden"
    """The catalog has the name (a HEAD finds it, or a listing), and a GET does not show the table."""
    FORBIDDEN = "forbidden"
    UNAUTHORIZED = "unauthorized"
    UNAVAILABLE = "unavailable"
    """The warehouse as a whole does not answer: refused, 503, scaled to zero."""
    THROTTLED = "throttled"
    STORAGE_AWAY = "storage_away"
    """Storage does not answer; the catalog does."""
    NOT_OFFERED = "not_offered"
    INVALID = "invalid"
    UNREADABLE = "unreadable"
    """The answer, or a file in storage, cannot be understood."""
    UNCLEAR = "unclear"
    """A timeout, a 5xx, a broken connection: no statement about what was done."""


class CatalogError(Exception):
    """A catalog's refusal or silence, in our words.

    ``retry_after`` is in seconds, where the server asked for it. ``location`` is the metadata location that the
    server named, normalised, where it named one. The text holds no stack of the server's, and is cleaned of secrets.
    """

    def __init__(
        self,
        code: ErrorCode,
        kind: ErrorKind,
        text: str,
        *,
        retry_after: float | None = None,
        location: str | None = None,
    ) -> None:
        super().__init__(cleaned(text))
        self.code = code
        self.kind = kind
        self.retry_after = retry_after
        self.location = location


class SoakFault(StrEnum):
    """Why a soak did not pass."""

    MISSING = "missing"
    """Storage has no file where the table names one."""
    DAMAGED = "damaged"
    """A file is not what the table says it is, or two statements about the table do not agree."""
    REFUSED = "refused"
    """Storage does not accept the credential, or the credential does not reach so far."""
    UNSUPPORTED = "unsupported"
    """Our own reader cannot read it; other readers may. An operator may accept that."""
    OUTAGE = "outage"
    """Storage gave no answer: nothing is known about the table."""


class SoakError(Exception):
    """The table stands under the name, but what a reader would find there is not right; the text says what.

    The text is cleaned of secrets.
    """

    def __init__(self, fault: SoakFault, text: str) -> None:
        super().__init__(cleaned(text))
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Table:
    """A table as a catalog's GET shows it under one name."""

    identifier: TableIdentifier
    uuid: str
    metadata_location: str
    location: str
    format_version: int
    sequence_number: int
    """``last-sequence-number``; 0 for format version 1."""
    snapshot_id: int | None
    """The current snapshot; None for a table that has none yet."""
    row_count: int | None
    """``total-records`` of the current snapshot's summary; None where it is not told; 0 without a snapshot."""
    metadata_log: frozenset[str] = frozenset()
    """Earlier metadata locations that the metadata remembers, normalised."""
    snapshot_ids: frozenset[int] = frozenset()
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """How a reader of this name opens its files: the catalog's ``config``/``storage-credentials``. Secret.

    Fresh with each load, so no part of what the table is.
    """


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot, as a person weighs it."""

    id: int
    committed_at: float
    """Seconds since the epoch."""
    operation: str
    rows: int | None
    """``total-records`` after it, where the writer told it."""
    added_rows: int | None
    writer: str = ""
    """Who wrote it, as its summary tells: the engine, its application or query; empty where it tells nothing."""


class Catalog(Protocol):
    """One warehouse of one catalog. Every method may raise CatalogError; ``soak`` also SoakError."""

    def load(self, identifier: TableIdentifier) -> Table:
        """GET the table. TABLE_MISSING only where the answer has the type of a missing table or namespace."""
        ...

    def register(self, identifier: TableIdentifier, metadata_location: str) -> None:
        """Put a second name on the metadata file. A clean return is no proof: load the name."""
        ...

    def rename(self, source: TableIdentifier, target: TableIdentifier) -> None:
        """One request. NOT_OFFERED where the server has no rename."""
        ...

    def drop(self, identifier: TableIdentifier) -> None:
        """Take the name away and leave every file. TABLE_MISSING where it is not there."""
        ...

    def create_namespace(self, namespace: tuple[str, ...]) -> None:
        """Create one namespace; ALREADY_EXISTS where it is there. Parents are the caller's business."""
        ...

    def namespace_exists(self, namespace: tuple[str, ...]) -> bool:
        """Whether this client sees the namespace, by a GET of its own (a listing is never trusted for it)."""
        ...

    def table_exists(self, identifier: TableIdentifier) -> bool:
        """Whether the catalog says by a HEAD that it has the table; False where it makes no such statement."""
        ...

    def view_exists(self, identifier: TableIdentifier) -> bool:
        """Whether a view holds the name; False where the catalog knows no views."""
        ...

    def list_tables(self, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        """Every table of the namespace, through all pages."""
        ...

    def soak(self, table: Table, *, accept_unsupported: bool = False) -> tuple[str, ...]:
        """Read the table as a reader of its name does: from storage, with the storage options that it came with.

        The metadata file says the same uuid, location, snapshot and format version; one data file and one delete file
        of each kind open, each through its manifest. Constant cost. Returns warnings: what does not agree and does
        not keep a reader from reading. With ``accept_unsupported`` what our reader cannot read is a warning, too.
        """
        ...

    def snapshots(self, table: Table) -> tuple[Snapshot, ...]:
        """The snapshots that the table's metadata file remembers, oldest first."""
        ...

    def file_missing(self, location: str, table: Table) -> bool:
        """Whether storage certainly has no file there, asked with the storage options of ``table``.

        Raises CatalogError, STORAGE_AWAY, where storage does not answer.
        """
        ...


class Lakehouse(Protocol):
    """The catalogs by warehouse; built after the fork, kept per process."""

    def catalog(self, warehouse: str) -> Catalog:
        """The warehouse's catalog."""
        ...
