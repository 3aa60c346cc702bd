"""What a double has, and what a test does to it by hand: settings, warehouses, time that passes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.support.rest_double.files import Files
from tests.support.rest_double.temperament import CORRECT, Temperament
from tests.support.rest_double.warehouse import Row, Vended, Warehouse

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.rest_double.access import Grants
    from tests.support.rest_double.privileges import Privileges
    from tests.support.rest_double.routes import Kind
    from worker.identifiers import TableIdentifier

ENDPOINTS: Final = (
    "GET /v1/config",
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/tables/rename",
)
RENAME_ENDPOINT: Final = "POST /v1/{prefix}/tables/rename"


def _nothing(kind: Kind) -> None:
    """What happens between look and change: nothing."""


@dataclass
class Premises:
    """The state of a double. Settings may be changed while it runs.

    ``between`` is called between what a request looks at and what it changes.
    """

    temperament: Temperament = CORRECT
    files: Files = field(default_factory=Files)
    grants: Grants | None = None
    """An authorizer that hides; None: everybody may do everything."""
    owners: frozenset[str] = frozenset()
    """Users to whom ``grants`` do not apply."""
    tokens: frozenset[str] | None = None
    """Tokens that are let in; None: whoever asks."""
    privileges: Privileges | None = None
    """Privileges and ownership in a Gravitino metalake; None: everybody may do everything."""
    users: frozenset[str] | None = None
    """Users that a Gravitino metalake knows; None: all."""
    maintenance: bool = False
    endpoints: tuple[str, ...] | None = ENDPOINTS
    """What config announces; None: nothing."""
    between: Callable[[Kind], None] = _nothing
    warehouses: dict[str, Warehouse] = field(default_factory=dict)
    """Warehouses by name."""

    def make_warehouse(
        self, name: str, root: str, *, soft_delete: bool = False, vended: Vended | None = None, known_as: str = ""
    ) -> Warehouse:
        """A new warehouse whose tables lie under ``root``; ``known_as`` is its id, where a test knows better."""
        warehouse = Warehouse(
            name,
            root.rstrip("/"),
            known_as or str(uuid.uuid4()),
            ignores_case=self.temperament.ignores_case,
            soft_delete=soft_delete,
            vended=vended or Vended(),
        )
        self.warehouses[name] = warehouse
        return warehouse

    def warehouse(self, name: str) -> Warehouse:
        """A warehouse by its name."""
        return self.warehouses[name]

    def share_warehouse(self, name: str, warehouse: Warehouse) -> None:
        """Let another name lead to the same tables, as catalogs do that share a backend."""
        self.warehouses[name] = warehouse

    def rename_warehouse(self, name: str, new_name: str) -> None:
        """Give a warehouse another name; its id stays."""
        warehouse = self.warehouses.pop(name)
        warehouse.name = new_name
        self.warehouses[new_name] = warehouse

    def forget_warehouse(self, name: str) -> None:
        """Delete a warehouse."""
        del self.warehouses[name]

    def run_tasks(self) -> None:
        """What a server does by itself after a while: soft deletions expire, purges delete files."""
        for warehouse in list(self.warehouses.values()):
            self.expire(warehouse)
        self.run_purges()

    def expire(self, warehouse: Warehouse) -> None:
        """Let the time of a warehouse's soft deletions come: the rows go, and purges are due."""
        with warehouse.lock:
            warehouse.purges += [row.location for row in warehouse.deleted if row.purge]
            warehouse.deleted[:] = []

    def run_purges(self) -> None:
        """Delete the files of what was dropped with purge."""
        for warehouse in list(self.warehouses.values()):
            with warehouse.lock:
                due, warehouse.purges[:] = list(warehouse.purges), []
                warehouse.purged += due
            for location in due:
                self.files.remove_all(location)

    def reconcile(self, *, delete_drift: bool) -> None:
        """Mend what the authorizer believes about where tables stand; ``delete_drift`` also takes old beliefs away."""
        for warehouse in self.warehouses.values():
            for row in warehouse.rows():
                row.homes = {row.identifier.namespace} | (set() if delete_drift else row.homes)

    def undrop(self, warehouse: Warehouse, table_uuid: str) -> bool:
        """Take a soft deletion back; whether the name was free for it."""
        with warehouse.lock:
            found = [row for row in warehouse.deleted if row.table_uuid == table_uuid]
            if found and warehouse.live(found[0].identifier) is not None:
                return False
            for row in found:
                warehouse.deleted.remove(row)
                warehouse.add(row)
        return True

    def row(self, warehouse: str, identifier: TableIdentifier) -> Row | None:
        """What a name leads to, without a request."""
        return self.warehouses[warehouse].live(identifier)
