"""An in-memory catalog that keeps the port's contract, for tests of the protocol.

It holds names and metadata. Tables are simulated (``create``, ``commit``) or real, on local disk, written by
pyiceberg (``hold``): then the soak reads them as the adapters do. The contract suite runs on it like on every other.

``before`` and ``after`` are called around every port call, with the call; what they raise reaches the caller, before
the call has an effect or after it. ``calls`` remembers every call.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from worker.lakehouse import metadata
from worker.lakehouse.history import snapshots
from worker.lakehouse.locations import local_path, normalise
from worker.lakehouse.port import Catalog, CatalogError, ErrorCode, ErrorKind, Snapshot, SoakError, SoakFault, Table
from worker.lakehouse.reading import ReadError
from worker.lakehouse.soak import soak
from worker.lakehouse.storage import Storage

if TYPE_CHECKING:
    from worker.identifiers import TableIdentifier

METADATA_LOG_LENGTH = 100
"""Earlier metadata locations that a simulated table remembers, like ``write.metadata.previous-versions-max``."""


class Call(NamedTuple):
    """One call of the port."""

    method: str
    arguments: tuple[object, ...]


Hook = Callable[[Call], None]


def _nothing(call: Call) -> None:
    """The hook that does nothing."""


@dataclass(frozen=True)
class SimulatedFile:
    """A metadata file of a simulated table."""

    uuid: str
    location: str
    sequence_number: int = 0
    snapshot_id: int | None = None
    row_count: int = 0
    log: tuple[str, ...] = ()
    snapshot_ids: frozenset[int] = frozenset()


@dataclass
class CatalogDouble(Catalog):
    """One warehouse. ``offers_rename`` False: a server without it. ``once`` True: one name per uuid."""

    offers_rename: bool = True
    once: bool = False
    before: Hook = _nothing
    after: Hook = _nothing
    calls: list[Call] = field(default_factory=list)
    names: dict[TableIdentifier, str] = field(default_factory=dict)
    """Metadata location by name: the whole state of a catalog."""
    namespaces: set[tuple[str, ...]] = field(default_factory=set)
    views: set[TableIdentifier] = field(default_factory=set)
    files: dict[str, SimulatedFile] = field(default_factory=dict)
    """Metadata files of simulated tables, by location."""
    hidden: set[TableIdentifier] = field(default_factory=set)
    """Names that only a HEAD finds."""
    broken: dict[str, SoakFault] = field(default_factory=dict)
    """Metadata locations of simulated tables whose data a reader cannot read, and why."""
    log_length: int = METADATA_LOG_LENGTH

    def __post_init__(self) -> None:
        self._mutex = threading.RLock()
        self._numbers = itertools.count(1)

    # What a test arranges.

    def create(self, identifier: TableIdentifier, *, rows: int = 10, table_uuid: str | None = None) -> str:
        """Simulate a new table with one snapshot under ``identifier``, its namespaces too; the metadata location."""
        with self._mutex:
            self.make_namespaces(identifier.namespace)
            location = f"file:///simulated/{identifier.name}-{next(self._numbers)}"
            self.names[identifier] = self._write(
                SimulatedFile(table_uuid or str(uuid.uuid4()), location), snapshot=True, rows=rows
            )
            return self.names[identifier]

    def hold(self, identifier: TableIdentifier, metadata_location: str) -> None:
        """Put ``identifier`` on a metadata file, a real one on local disk or a simulated one, without any check."""
        with self._mutex:
            self.make_namespaces(identifier.namespace)
            self.names[identifier] = normalise(metadata_location)

    def commit(self, identifier: TableIdentifier, *, rows: int = 1, schema_only: bool = False) -> str:
        """Commit to a simulated table through ``identifier``, as a writer does; the new metadata location."""
        with self._mutex:
            was = self.names[identifier]
            file = self.files[was]
            log = (*file.log, was)[-self.log_length :]
            self.names[identifier] = self._write(replace(file, log=log), snapshot=not schema_only, rows=rows)
            return self.names[identifier]

    def delete_file(self, metadata_location: str) -> None:
        """Clean a simulated metadata file up, as a commit under another name may."""
        del self.files[metadata_location]

    def make_namespaces(self, namespace: tuple[str, ...]) -> None:
        """Make a namespace and its parents, without a call."""
        with self._mutex:
            self.namespaces.update(namespace[:depth] for depth in range(1, len(namespace) + 1))

    # The port.

    def load(self, identifier: TableIdentifier) -> Table:
        with self._call("load", identifier):
            if identifier in self.hidden:
                raise CatalogError(ErrorCode.TABLE_MISSING, ErrorKind.PERMANENT, f"there is no table {identifier}")
            return self._table(identifier)

    def register(self, identifier: TableIdentifier, metadata_location: str) -> None:
        with self._call("register", identifier, metadata_location):
            self._need_namespace(identifier.namespace)
            self._need_free(identifier)
            table = self._read(identifier, normalise(metadata_location))
            if self.once and any(self._read(name, where).uuid == table.uuid for name, where in self.names.items()):
                raise CatalogError(ErrorCode.ALREADY_EXISTS, ErrorKind.PERMANENT, f"{identifier} already exists")
            self.names[identifier] = table.metadata_location

    def rename(self, source: TableIdentifier, target: TableIdentifier) -> None:
        with self._call("rename", source, target):
            if not self.offers_rename:
                raise CatalogError(ErrorCode.NOT_OFFERED, ErrorKind.PERMANENT, "this catalog does not offer rename")
            self._need_namespace(target.namespace)
            self._need_table(source)
            self._need_free(target)
            self.names[target] = self.names.pop(source)

    def drop(self, identifier: TableIdentifier) -> None:
        with self._call("drop", identifier):
            self._need_table(identifier)
            del self.names[identifier]

    def create_namespace(self, namespace: tuple[str, ...]) -> None:
        with self._call("create_namespace", namespace):
            if namespace in self.namespaces:
                raise CatalogError(
                    ErrorCode.ALREADY_EXISTS, ErrorKind.PERMANENT, f"namespace {'.'.join(namespace)} already exists"
                )
            if namespace[:-1]:
                self._need_namespace(namespace[:-1])
            self.namespaces.add(namespace)

    def namespace_exists(self, namespace: tuple[str, ...]) -> bool:
        with self._call("namespace_exists", namespace):
            return namespace in self.namespaces

    def table_exists(self, identifier: TableIdentifier) -> bool:
        with self._call("table_exists", identifier):
            return identifier in self.names and identifier.namespace in self.namespaces

    def view_exists(self, identifier: TableIdentifier) -> bool:
        with self._call("view_exists", identifier):
            return identifier in self.views

    def list_tables(self, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        with self._call("list_tables", namespace):
            self._need_namespace(namespace)
            names = sorted(name for name in self.names if name.namespace == namespace)
        yield from names

    def soak(self, table: Table, *, accept_unsupported: bool = False) -> tuple[str, ...]:
        with self._call("soak", table):
            if table.metadata_location not in self.files and local_path(table.metadata_location) is not None:
                return soak(table, Storage({}), accept_unsupported=accept_unsupported)
            if table.metadata_location not in self.files:
                raise SoakError(SoakFault.MISSING, f"the metadata file {table.metadata_location} is not in storage")
            fault = self.broken.get(table.metadata_location)
            if fault is None or (fault is SoakFault.UNSUPPORTED and accept_unsupported):
                return () if fault is None else ("accepted by an operator",)
            raise SoakError(fault, f"a data file of {table.identifier} cannot be read")

    def snapshots(self, table: Table) -> tuple[Snapshot, ...]:
        with self._call("snapshots", table):
            if table.metadata_location not in self.files:
                return snapshots(table, Storage({}))
            return tuple(Snapshot(number, float(number), "append", None, None) for number in sorted(table.snapshot_ids))

    def file_missing(self, location: str, table: Table) -> bool:
        with self._call("file_missing", location, table):
            if normalise(location).startswith("file:///simulated/"):
                return normalise(location) not in self.files and table.metadata_location in self.files
            return Storage({}).certainly_missing(normalise(location), beside=table.metadata_location)

    # Inside.

    @contextmanager
    def _call(self, method: str, *arguments: object) -> Iterator[None]:
        call = Call(method, arguments)
        self.calls.append(call)
        self.before(call)
        with self._mutex:
            yield
        self.after(call)

    def _write(self, file: SimulatedFile, *, snapshot: bool, rows: int) -> str:
        number = next(self._numbers)
        if snapshot:
            file = replace(
                file,
                sequence_number=file.sequence_number + 1,
                snapshot_id=number,
                row_count=file.row_count + rows,
                snapshot_ids=file.snapshot_ids | {number},
            )
        location = f"{file.location}/metadata/{number:05}-{uuid.uuid4()}.metadata.json"
        self.files[location] = file
        return location

    def _table(self, identifier: TableIdentifier) -> Table:
        self._need_table(identifier)
        return self._read(identifier, self.names[identifier])

    def _read(self, identifier: TableIdentifier, location: str) -> Table:
        file = self.files.get(location)
        if file is None:
            return _read_from_disk(identifier, location)
        return Table(
            identifier=identifier,
            uuid=file.uuid,
            metadata_location=location,
            location=file.location,
            format_version=2,
            sequence_number=file.sequence_number,
            snapshot_id=file.snapshot_id,
            row_count=file.row_count,
            metadata_log=frozenset(file.log),
            snapshot_ids=file.snapshot_ids,
        )

    def _need_table(self, identifier: TableIdentifier) -> None:
        if identifier not in self.names:
            raise CatalogError(ErrorCode.TABLE_MISSING, ErrorKind.PERMANENT, f"there is no table {identifier}")

    def _need_free(self, identifier: TableIdentifier) -> None:
        if identifier in self.names or identifier in self.views:
            raise CatalogError(ErrorCode.ALREADY_EXISTS, ErrorKind.PERMANENT, f"{identifier} already exists")

    def _need_namespace(self, namespace: tuple[str, ...]) -> None:
        if namespace not in self.namespaces:
            raise CatalogError(
                ErrorCode.NAMESPACE_MISSING, ErrorKind.PERMANENT, f"there is no namespace {'.'.join(namespace)}"
            )


def _read_from_disk(identifier: TableIdentifier, location: str) -> Table:
    try:
        return metadata.table_from(identifier, location, metadata.decode(Storage({}).read(location)), {})
    except ReadError as error:
        why = f"its metadata file {location} {error.why}"
        code = ErrorCode.FILE_MISSING if error.fault is SoakFault.MISSING else ErrorCode.UNREADABLE
        raise CatalogError(code, ErrorKind.PERMANENT, why, location=location) from error
    except metadata.MetadataError as error:
        raise CatalogError(ErrorCode.UNREADABLE, ErrorKind.TRANSIENT, str(error)) from error


@dataclass
class LakehouseDouble:
    """Warehouses by name; each is made when it is first asked for."""

    catalogs: dict[str, CatalogDouble] = field(default_factory=dict)

    def catalog(self, warehouse: str) -> CatalogDouble:
        """The warehouse's double."""
        return self.catalogs.setdefault(warehouse, CatalogDouble())
