"""The adapter for pyiceberg's SqlCatalog, on Postgres or SQLite.

Responsible for: the port's promises on top of a catalog that keeps some of them differently.
Must not know: SQL; the statements are pyiceberg's.

What is kept differently, and what is done about it:

* ``register_table`` inserts its row and only then reads the file; with an unreadable one it raises and leaves the row.
  The file is read first here.
* ``register_table`` and ``rename_table`` end with a load, which may raise after the change took effect. Their loads
  return the bare pointer here, and read no file.
* A load builds everything that is in the metadata. Here it is the pointer, and the file is decoded as far as needed.
* Several processes that create the catalog's tables at once get raw database errors.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from worker.identifiers import TableIdentifier
from worker.lakehouse.cleaning import one_line
from worker.lakehouse.history import snapshots
from worker.lakehouse.locations import may_be_local, normalise
from worker.lakehouse.metadata import MetadataDocument, MetadataError, decode, table_from
from worker.lakehouse.port import Catalog, CatalogError, ErrorCode, ErrorKind, Snapshot, SoakFault, Table
from worker.lakehouse.reading import ReadError
from worker.lakehouse.soak import soak
from worker.lakehouse.sql_errors import FOREIGN, sql_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from worker.lakehouse.connection import CatalogConnection
    from worker.lakehouse.storage import Storage, Storages

_TYPE_COLUMN: Final = "iceberg_type"
"""What tells the second version of the catalog's own tables from the first."""


class _Pointer(NamedTuple):
    """What a row of the catalog says."""

    metadata_location: str


class _PointerCatalog(SqlCatalog):
    """A SqlCatalog whose loads return the pointer, with an engine of our own making."""

    def __init__(self, name: str, engine: Engine, **properties: str) -> None:
        # Past SqlCatalog's own constructor: its engine knows no timeouts, and its look at the catalog's tables reads
        # every row of them.
        MetastoreCatalog.__init__(self, name, **properties)
        self.engine = engine
        self._schema_version = self._schema()

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Any:
        if not orm_table.metadata_location:
            raise NoSuchTableError("the catalog's row holds no metadata location")
        return _Pointer(orm_table.metadata_location)

    def _schema(self) -> str:
        if not inspect(self.engine).has_table(IcebergTables.__tablename__):
            try:
                self.create_tables()
            except (IntegrityError, ProgrammingError, OperationalError):
                # Another process was creating them; if that is not why, the next line says so.
                if not inspect(self.engine).has_table(IcebergTables.__tablename__):
                    raise
        columns = {column["name"] for column in inspect(self.engine).get_columns(IcebergTables.__tablename__)}
        return "v1" if _TYPE_COLUMN in columns else "v0"


class SqlLakehouseCatalog(Catalog):
    """One warehouse: one catalog name in the database."""

    def __init__(self, warehouse: str, connection: CatalogConnection, database: Database, storages: Storages) -> None:
        self._warehouse = warehouse
        self._connection = connection
        self._database = database
        self._properties = {name: value.get_secret_value() for name, value in connection.properties.items()}
        local = may_be_local(connection.warehouse_location)
        self._storage: Storage = storages.with_options(self._properties, local=local)
        self._catalog: _PointerCatalog | None = None

    def load(self, identifier: TableIdentifier) -> Table:
        """Ask the row, then decode the file that it points to."""
        with translated(f"load the table {identifier}"):
            pointer: Any = self._opened().load_table(_name(identifier))
        location = normalise(pointer.metadata_location)
        document = self._read(location, f"load the table {identifier}")
        try:
            return table_from(identifier, location, document, self._properties)
        except MetadataError as error:
            raise _unreadable(f"load the table {identifier}", error) from error

    def register(self, identifier: TableIdentifier, metadata_location: str) -> None:
        """Read the file, then insert the row."""
        about = f"register the table {identifier}"
        self._read(normalise(metadata_location), about)
        with translated(about):
            self._opened().register_table(_name(identifier), metadata_location)

    def rename(self, source: TableIdentifier, target: TableIdentifier) -> None:
        """Update the row."""
        with translated(f"rename the table {source} to {target}"):
            self._opened().rename_table(_name(source), _name(target))

    def drop(self, identifier: TableIdentifier) -> None:
        """Delete the row; this catalog knows no purge by a flag."""
        with translated(f"drop the table {identifier}"):
            self._opened().drop_table(_name(identifier))

    def create_namespace(self, namespace: tuple[str, ...]) -> None:
        """Insert the namespace's row."""
        with translated(f"create the namespace {'.'.join(namespace)}"):
            self._opened().create_namespace(namespace)

    def namespace_exists(self, namespace: tuple[str, ...]) -> bool:
        """Ask for its row, or for a table or a namespace in it."""
        with translated(f"show the namespace {'.'.join(namespace)}"):
            return self._opened().namespace_exists(namespace)

    def table_exists(self, identifier: TableIdentifier) -> bool:
        """Ask for its row: nothing is hidden here."""
        with translated(f"say whether it has the table {identifier}"):
            return self._opened().table_exists(_name(identifier))

    def view_exists(self, identifier: TableIdentifier) -> bool:  # noqa: ARG002 - the port's signature
        """An SQL catalog has no views."""
        return False

    def list_tables(self, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        """Every row of the namespace."""
        with translated(f"list the tables of {'.'.join(namespace)}"):
            names = self._opened().list_tables(namespace)
        for name in names:
            yield TableIdentifier(name[:-1], name[-1])

    def soak(self, table: Table, *, accept_unsupported: bool = False) -> tuple[str, ...]:
        """Read the table with the settings' own storage options: this catalog hands out none."""
        return soak(table, self._storage, accept_unsupported=accept_unsupported)

    def snapshots(self, table: Table) -> tuple[Snapshot, ...]:
        """From the metadata file."""
        return snapshots(table, self._storage)

    def file_missing(self, location: str, table: Table) -> bool:
        """Ask storage, with the table's own metadata file as the positive control."""
        return self._storage.certainly_missing(normalise(location), beside=table.metadata_location)

    def _opened(self) -> _PointerCatalog:
        if self._catalog is None:
            properties = dict(self._properties)
            if self._connection.warehouse_location is not None:
                properties["warehouse"] = self._connection.warehouse_location
            self._catalog = _PointerCatalog(self._warehouse, self._database.engine(), **properties)
        return self._catalog

    def _read(self, location: str, about: str) -> MetadataDocument:
        try:
            return decode(self._storage.read(location))
        except (ReadError, MetadataError) as error:
            raise _file_error(about, location, error) from error


class Database:
    """The catalog's database, opened once per process for all warehouses. It does not survive a fork."""

    def __init__(self, connection: CatalogConnection) -> None:
        self._connection = connection
        self._engine: Engine | None = None

    def engine(self) -> Engine:
        """The engine; no connection is opened yet. Raises CatalogError where the address is none."""
        if self._connection.problem is not None:
            raise CatalogError(ErrorCode.UNAUTHORIZED, ErrorKind.TRANSIENT, self._connection.problem)
        if self._engine is None:
            with translated("read its address"):
                self._engine = _engine(self._connection)
        return self._engine

    def close(self) -> None:
        """Close its connections."""
        if self._engine is not None:
            self._engine.dispose()


def _engine(connection: CatalogConnection) -> Engine:
    url = make_url(connection.uri.get_secret_value())
    if url.get_backend_name() == "sqlite":
        # Waiting for SQLite's one writer is bounded by the same patience as everything else.
        return create_engine(url, connect_args={"timeout": connection.timeout_seconds})
    return create_engine(
        url,
        pool_size=1,
        max_overflow=4,
        pool_pre_ping=True,
        pool_timeout=connection.timeout_seconds,
        connect_args=_psycopg_arguments(connection) if url.get_driver_name() == "psycopg" else {},
    )


def _psycopg_arguments(connection: CatalogConnection) -> dict[str, Any]:
    return {
        # Behind a pooler in transaction mode the next statement may run on another backend: nothing is prepared.
        "prepare_threshold": None,
        "connect_timeout": max(2, int(connection.timeout_seconds)),
        "application_name": "reroot-catalog",
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }


def _name(identifier: TableIdentifier) -> tuple[str, ...]:
    return (*identifier.namespace, identifier.name)


@contextmanager
def translated(about: str) -> Iterator[None]:
    """Turn what pyiceberg, SQLAlchemy and the drivers raise into CatalogError; ``about`` says what was not done."""
    try:
        yield
    except FOREIGN as failure:
        raise sql_error(failure, about) from failure


def _unreadable(about: str, error: Exception) -> CatalogError:
    return CatalogError(
        ErrorCode.UNREADABLE, ErrorKind.TRANSIENT, f"the catalog did not {about}: {one_line(str(error))}"
    )


def _file_error(about: str, location: str, error: ReadError | MetadataError) -> CatalogError:
    text = f"the catalog did not {about}: the metadata file {location}"
    if isinstance(error, MetadataError):
        return CatalogError(ErrorCode.UNREADABLE, ErrorKind.TRANSIENT, f"{text} cannot be understood: {error}")
    if error.fault is SoakFault.MISSING:
        return CatalogError(ErrorCode.FILE_MISSING, ErrorKind.PERMANENT, f"{text} {error.why}", location=location)
    return CatalogError(ErrorCode.UNREADABLE, ErrorKind.TRANSIENT, f"{text} {error.why}")
