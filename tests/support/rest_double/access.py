"""Who may do what: an authorizer that hides what it forbids, as Lakekeeper with OpenFGA does.

What a user may not see is a 404 of the same type as if it were not there; what is seen and not allowed is a 403.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.support.rest_double.lakekeeper import said

if TYPE_CHECKING:
    from tests.support.rest_double.scene import Scene
    from tests.support.rest_double.warehouse import Levels, Row

WAREHOUSE: Final[Levels] = ()
_IMPLIED: Final = {
    "describe": {"describe"},
    "select": {"describe", "select"},
    "modify": {"describe", "select", "modify"},
    "create": {"describe", "create"},
    "ownership": {"describe", "select", "modify", "create"},
}


@dataclass(frozen=True)
class Grants:
    """Grants by user: on namespaces, with everything below, and on tables by uuid. ``WAREHOUSE`` is the whole."""

    on_namespaces: dict[str, dict[Levels, set[str]]] = field(default_factory=dict)
    on_tables: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    def grant(self, user: str, relation: str, namespace: Levels) -> None:
        """Give a user a relation to a namespace."""
        self.on_namespaces.setdefault(user, {}).setdefault(namespace, set()).update(_IMPLIED[relation])

    def grant_on_table(self, user: str, relation: str, table_uuid: str) -> None:
        """Give a user a relation to one table, whatever its name becomes."""
        self.on_tables.setdefault(user, {}).setdefault(table_uuid, set()).update(_IMPLIED[relation])

    def forget_table(self, table_uuid: str) -> None:
        """The table is gone, and with it what was granted on it."""
        for tables in self.on_tables.values():
            tables.pop(table_uuid, None)


@dataclass(frozen=True, slots=True)
class Rights:
    """What one user may do."""

    user: str
    grants: Grants | None
    everything: bool

    def check_warehouse(self, scene: Scene, right: str) -> None:
        """Refuse what concerns the warehouse as a whole."""
        if self.everything or right in self._on(WAREHOUSE):
            return
        if not self.sees_warehouse():
            raise scene.temperament.dialect.warehouse_missing(scene.warehouse.id, by_id=True)
        if right != "describe":
            raise said(403, "WarehouseActionForbidden", f"Warehouse action `can_{right}_namespace` forbidden")

    def check_namespace(self, scene: Scene, namespace: Levels, right: str) -> None:
        """Refuse what concerns a namespace."""
        if self.everything or right in self._on(namespace):
            return
        if not self.sees(namespace):
            raise scene.temperament.dialect.namespace_missing(namespace)
        if right != "describe":
            raise said(403, "NamespaceActionForbidden", f"Namespace action `can_{right}_table` forbidden")

    def check_table(self, scene: Scene, row: Row, right: str) -> None:
        """Refuse what concerns a table. Its rights come from where it was made, not from where it was renamed to."""
        if self.everything:
            return
        held = self._on_table(row)
        if not held:
            raise scene.temperament.dialect.table_missing(row.identifier)
        if right not in held:
            raise said(403, "TableActionForbidden", f"Table action `can_{right}` forbidden on table '{row.identifier}'")

    def may_read_files(self, row: Row) -> bool:
        """Whether the user is handed the table's credential."""
        return self.everything or "select" in self._on_table(row)

    def forget(self, row: Row) -> None:
        """A row went, and what was granted on it."""
        if self.grants is not None:
            self.grants.forget_table(row.table_uuid)

    def _on(self, namespace: Levels) -> set[str]:
        assert self.grants is not None
        granted = self.grants.on_namespaces.get(self.user, {})
        return set().union(*(granted.get(namespace[:depth], set()) for depth in range(len(namespace) + 1)))

    def _on_table(self, row: Row) -> set[str]:
        assert self.grants is not None
        held = self.grants.on_tables.get(self.user, {}).get(row.table_uuid, set())
        return held.union(*map(self._on, row.homes))

    def sees(self, namespace: Levels) -> bool:
        """A namespace is seen by whoever has a right on it or on anything in it."""
        if self.everything:
            return True
        assert self.grants is not None
        granted = self.grants.on_namespaces.get(self.user, {})
        return bool(self._on(namespace)) or any(held[: len(namespace)] == namespace for held in granted)

    def sees_warehouse(self) -> bool:
        """Whether the user has a right on anything at all."""
        if self.everything:
            return True
        assert self.grants is not None
        return bool(self.grants.on_namespaces.get(self.user) or self.grants.on_tables.get(self.user))
