"""The catalogs of one lakehouse, by warehouse, each built in the process that uses it.

Responsible for: which adapter a connection needs, what warehouses share, and that no catalog object crosses a fork: a
shared socket mixes two processes' answers, and was seen to hand out another table.
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


def open_lakehouse(connection: CatalogConnection | Callable[[str], CatalogConnection]) -> OpenLakehouse:
    """The lakehouse that a connection leads to, or that has one for each warehouse.

    Nothing is asked and nothing opened before a catalog is used.
    """
    return OpenLakehouse((lambda _: connection) if isinstance(connection, CatalogConnection) else connection)


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

    def __init__(self, connect: Callable[[str], CatalogConnection]) -> None:
        self._connect = connect
        self._owner = os.getpid()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def catalog(self, warehouse: str) -> Catalog:
        """The warehouse's catalog in this process; another one where the way to it has changed."""
        if self._owner != os.getpid():
            self._owner, self._kept = os.getpid(), OrderedDict()
        connection = self._connect(warehouse)
        kept = self._kept.get(warehouse)
        if kept is None or kept.shared.connection != connection:
            self._let_go(warehouse)
            shared = self._shared(connection)
            kept = self._kept[warehouse] = _Kept(shared, shared.open(warehouse))
            if len(self._kept) > _KEPT:
                self._let_go(next(iter(self._kept)))
        self._kept.move_to_end(warehouse)
        return kept.catalog

    def close(self) -> None:
        """Close this process's connections; the next use opens new ones."""
        if self._owner == os.getpid():
            for warehouse in list(self._kept):
                self._let_go(warehouse)
        self._kept = OrderedDict()

    def _shared(self, connection: CatalogConnection) -> _Shared:
        """What warehouses with this very connection use already, or what they will."""
        known = (kept.shared for kept in self._kept.values() if kept.shared.connection == connection)
        return next(known, None) or _open(connection)

    def _let_go(self, warehouse: str) -> None:
        kept = self._kept.pop(warehouse, None)
        if kept is not None and all(other.shared is not kept.shared for other in self._kept.values()):
            kept.shared.close()


@dataclass(frozen=True, slots=True)
class _Shared:
    """What warehouses share that are reached in the same way: what opens them, and what closes them all."""

    connection: CatalogConnection
    open: Callable[[str], Catalog]
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Kept:
    """One open warehouse."""

    shared: _Shared
    catalog: Catalog


def _open(connection: CatalogConnection) -> _Shared:
    storages = Storages()
    if connection.type is CatalogType.SQL:
        from worker.lakehouse import sql  # noqa: PLC0415 - brings pyiceberg, which a REST catalog does without

        database = sql.Database(connection)
        return _Shared(
            connection,
            lambda warehouse: sql.SqlLakehouseCatalog(warehouse, connection, database, storages),
            database.close,
        )
    from worker.lakehouse import rest, rest_wire  # noqa: PLC0415 - bring urllib3, which an SQL catalog does without

    session = rest_wire.Session(connection)
    return _Shared(connection, lambda warehouse: rest.RestCatalog(warehouse, session, storages), session.pool.clear)
