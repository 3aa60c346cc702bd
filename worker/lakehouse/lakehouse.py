"""The catalogs of one lakehouse, by warehouse, each built in the process that uses it.

Responsible for: which adapter a connection needs, and that no catalog object crosses a fork: a shared socket mixes two
processes' answers, and was seen to hand out another table.
Must not know: jobs, settings.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from worker.lakehouse.connection import CatalogConnection, CatalogType
from worker.lakehouse.port import Catalog, Lakehouse
from worker.lakehouse.storage import Storages

if TYPE_CHECKING:
    from collections.abc import Callable

_KEPT: Final = 64
"""Warehouses that one process keeps open: its tenants of the last while."""


def open_lakehouse(connection: CatalogConnection) -> OpenLakehouse:
    """The lakehouse that a connection leads to. Nothing is asked and nothing opened before a catalog is used."""
    return OpenLakehouse(connection)


def preload(connection: CatalogConnection) -> None:
    """Import what every process of a worker will need, before they are forked: so it lies in memory once.

    Modules only. Nothing is opened, and no thread pool of pyarrow's is started.
    """
    adapters = {CatalogType.SQL: ("sql",), CatalogType.REST: ("rest", "rest_wire")}
    for name in adapters[connection.type]:
        import_module(f"worker.lakehouse.{name}")
    import_module("pyarrow.parquet")


class OpenLakehouse(Lakehouse):
    """Catalogs by warehouse. After a fork the child starts with none; the parent's are left alone, not closed."""

    def __init__(self, connection: CatalogConnection) -> None:
        self._connection = connection
        self._owner = os.getpid()
        self._kept: OrderedDict[str, Catalog] = OrderedDict()
        self._warehouses: _Warehouses | None = None

    def catalog(self, warehouse: str) -> Catalog:
        """The warehouse's catalog in this process."""
        if self._owner != os.getpid():
            self._owner, self._kept, self._warehouses = os.getpid(), OrderedDict(), None
        if self._warehouses is None:
            self._warehouses = _warehouses(self._connection)
        if warehouse not in self._kept:
            self._kept[warehouse] = self._warehouses.open(warehouse)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(warehouse)
        return self._kept[warehouse]

    def close(self) -> None:
        """Close this process's connections; the next use opens new ones."""
        if self._warehouses is not None and self._owner == os.getpid():
            self._warehouses.close()
        self._kept, self._warehouses = OrderedDict(), None


@dataclass(frozen=True, slots=True)
class _Warehouses:
    """What opens warehouses that share one connection and one set of storages, and what closes them all."""

    open: Callable[[str], Catalog]
    close: Callable[[], None]


def _warehouses(connection: CatalogConnection) -> _Warehouses:
    storages = Storages()
    if connection.type is CatalogType.SQL:
        from worker.lakehouse import sql  # noqa: PLC0415 - brings pyiceberg, which a REST catalog does without

        database = sql.Database(connection)
        return _Warehouses(
            lambda warehouse: sql.SqlLakehouseCatalog(warehouse, connection, database, storages), database.close
        )
    from worker.lakehouse import rest, rest_wire  # noqa: PLC0415 - bring urllib3, which an SQL catalog does without

    session = rest_wire.Session(connection)
    return _Warehouses(lambda warehouse: rest.RestCatalog(warehouse, session, storages), session.pool.clear)
