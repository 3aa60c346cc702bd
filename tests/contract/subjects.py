"""The catalogs that the contract suite runs on: each with a writer that knows nothing of Reroot."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr
from pyiceberg.exceptions import ServerError

from tests.contract.capabilities import LACKS
from tests.support.catalog_double import CatalogDouble
from tests.support.rest_double import RestDouble
from tests.support.tables import append, files_under, make_namespaces, make_table, pyiceberg_catalog_for
from worker.identifiers import TableIdentifier
from worker.lakehouse.connection import CatalogConnection, CatalogType
from worker.lakehouse.lakehouse import OpenLakehouse, open_lakehouse
from worker.lakehouse.locations import local_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog as PyIcebergCatalog

    from tests.contract.capabilities import Capability
    from tests.support.rest_double import Temperament
    from worker.lakehouse.port import Catalog

WAREHOUSE = "w_contract"
_numbers = itertools.count(1)


class Subject(ABC):
    """One catalog under test. Its namespaces are this test's own: a server may be shared by all tests."""

    catalog: Catalog
    lacks: Mapping[Capability, str] = {}
    """What this catalog cannot do by its nature, and why."""
    scheme = "file:///"
    """How its locations begin."""
    foreign = False
    """Somebody else's server: what its kind leaves open is not known beforehand."""

    def __init__(self, prefix: str = "") -> None:
        number = next(_numbers)
        self.flat = (f"{prefix}flat{number}",)
        self.place = (f"{prefix}main{number}", "ventas")

    def old(self, name: str = "ds_1") -> TableIdentifier:
        """A name in the flat namespace, where tables are before a move."""
        return TableIdentifier(self.flat, name)

    def new(self, name: str = "ds_1") -> TableIdentifier:
        """A name in the two-level namespace, where they are to stand."""
        return TableIdentifier(self.place, name)

    @abstractmethod
    def client(self) -> Catalog:
        """Another client of the same catalog, which shares no connection with the first."""

    @abstractmethod
    def close(self) -> None:
        """Close every connection that the test opened."""

    @abstractmethod
    def make(self, identifier: TableIdentifier, *, rows: int = 10, snapshots: int = 1) -> None:
        """A table, and its namespaces."""

    @abstractmethod
    def make_namespaces(self, namespace: tuple[str, ...]) -> None:
        """A namespace and its parents."""

    @abstractmethod
    def commit(self, identifier: TableIdentifier) -> None:
        """Append a row through a name."""

    @abstractmethod
    def files(self) -> set[str]:
        """Every file of the warehouse."""

    @abstractmethod
    def lose(self, location: str) -> None:
        """Take a metadata file out of storage."""


class RealSubject(Subject):
    """An adapter on a real catalog, its tables on local disk, written by pyiceberg."""

    def __init__(
        self, connection: CatalogConnection, folder: Path, *, warehouse: str = WAREHOUSE, prefix: str = ""
    ) -> None:
        super().__init__(prefix)
        self._connection = connection
        self._folder = folder
        self._warehouse = warehouse
        self._opened: list[OpenLakehouse] = []
        self.catalog = self.client()
        self.writer: PyIcebergCatalog = pyiceberg_catalog_for(connection, warehouse)

    def client(self) -> Catalog:
        lakehouse = open_lakehouse(self._connection)
        self._opened.append(lakehouse)
        return lakehouse.catalog(self._warehouse)

    def close(self) -> None:
        self.writer.close()
        for lakehouse in self._opened:
            lakehouse.close()

    def make(self, identifier: TableIdentifier, *, rows: int = 10, snapshots: int = 1) -> None:
        make_table(self.writer, identifier, rows=rows, snapshots=snapshots)

    def make_namespaces(self, namespace: tuple[str, ...]) -> None:
        make_namespaces(self.writer, namespace)

    def commit(self, identifier: TableIdentifier) -> None:
        append(self.writer, identifier)

    def files(self) -> set[str]:
        return files_under(self._folder)

    def lose(self, location: str) -> None:
        path = local_path(location)
        assert path is not None
        Path(path).unlink()


def make_in_spite_of_errors(writer: PyIcebergCatalog, identifier: TableIdentifier, rows: int, snapshots: int) -> None:
    """A table, also where the server's nature is to make it and to answer with an error."""
    try:
        make_table(writer, identifier, rows=rows, snapshots=snapshots)
    except ServerError:
        # The writer looks, and goes on.
        for _ in range(snapshots):
            append(writer, identifier, rows=rows)


class RestDoubleSubject(RealSubject):
    """The adapter on the REST double, in one of its temperaments."""

    def __init__(self, temperament: Temperament, folder: Path) -> None:
        self.double = RestDouble(temperament)
        self.double.make_warehouse(WAREHOUSE, f"file://{folder}")
        self.double.start()
        self.lacks = LACKS.get(temperament.name, {})
        # Pages of two, so that every listing here has several.
        properties = {"rest-page-size": SecretStr("2")}
        super().__init__(CatalogConnection(CatalogType.REST, SecretStr(self.double.uri), properties=properties), folder)

    def make(self, identifier: TableIdentifier, *, rows: int = 10, snapshots: int = 1) -> None:
        make_in_spite_of_errors(self.writer, identifier, rows, snapshots)

    def close(self) -> None:
        super().close()
        self.double.stop()
        assert not self.double.failures


class RealTablesInTheDouble(Subject):
    """The in-memory double, holding real tables that a scratch catalog writes."""

    def __init__(self, connection: CatalogConnection, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._scratch = pyiceberg_catalog_for(connection, WAREHOUSE)
        make_namespaces(self._scratch, ("scratch",))
        self.double = CatalogDouble()
        self.catalog = self.double

    def client(self) -> Catalog:
        return self.double

    def close(self) -> None:
        self._scratch.close()

    def make(self, identifier: TableIdentifier, *, rows: int = 10, snapshots: int = 1) -> None:
        table = make_table(self._scratch, identifier, rows=rows, snapshots=snapshots)
        self.double.hold(identifier, table.metadata_location)

    def make_namespaces(self, namespace: tuple[str, ...]) -> None:
        self.double.make_namespaces(namespace)

    def commit(self, identifier: TableIdentifier) -> None:
        scratch = TableIdentifier(("scratch",), f"copy{next(_numbers)}")
        self._scratch.register_table(("scratch", scratch.name), self.double.names[identifier])
        self.double.hold(identifier, append(self._scratch, scratch).metadata_location)

    def files(self) -> set[str]:
        return files_under(self._folder)

    def lose(self, location: str) -> None:
        path = local_path(location)
        assert path is not None
        Path(path).unlink()


class SimulatedTables(Subject):
    """The in-memory double with simulated tables: what tests of the protocol use."""

    def __init__(self) -> None:
        super().__init__()
        self.double = CatalogDouble()
        self.catalog = self.double

    def client(self) -> Catalog:
        return self.double

    def close(self) -> None:
        """Nothing was opened."""

    def make(self, identifier: TableIdentifier, *, rows: int = 10, snapshots: int = 1) -> None:
        self.double.create(identifier, rows=rows)
        for _ in range(snapshots - 1):
            self.double.commit(identifier, rows=rows)

    def make_namespaces(self, namespace: tuple[str, ...]) -> None:
        self.double.make_namespaces(namespace)

    def commit(self, identifier: TableIdentifier) -> None:
        self.double.commit(identifier)

    def files(self) -> set[str]:
        return set(self.double.files)

    def lose(self, location: str) -> None:
        self.double.delete_file(location)
