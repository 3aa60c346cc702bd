"""Who may do what in a Gravitino metalake with authorization: privileges on schemas, and ownership of tables.

A schema is one level to it: 1.2 asks the first level of a namespace for a rename and a listing and the last one for
everything else; 1.3 asks the namespace as a whole. It asks before it looks whether anything is there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.support.rest_double.gravitino import Gravitino
from tests.support.rest_double.routes import Kind
from worker.identifiers import TableIdentifier

if TYPE_CHECKING:
    from tests.support.rest_double.scene import Scene
    from tests.support.rest_double.warehouse import Levels

_OF_A_TABLE: Final = {Kind.LOAD: "loadTable", Kind.HEAD: "tableExists", Kind.COMMIT: "updateTable"}
_IN_A_SCHEMA: Final = {Kind.CREATE: "createTable", Kind.REGISTER: "registerTable"}


@dataclass
class Privileges:
    """``owners`` of the catalog may do everything; others what their schemas allow, and what takes ownership."""

    owners: set[str] = field(default_factory=set)
    schemas: dict[str, set[str]] = field(default_factory=dict)
    """By user: the schemas in which he has every privilege; ``*`` is the catalog, and with it all of them."""

    def check(self, scene: Scene) -> None:
        """Refuse what the user may not do."""
        if scene.user in self.owners:
            return
        kind, dialect = scene.kind, scene.temperament.dialect
        assert isinstance(dialect, Gravitino)
        if kind in _OF_A_TABLE and not (self._may(scene, scene.namespace) or self._owns(scene, scene.identifier)):
            raise dialect.may_not_load(scene.user, f"{scene.warehouse.name}.{scene.identifier}")
        if kind in _IN_A_SCHEMA and not self._may(scene, scene.namespace):
            raise dialect.forbidden(scene.user, _IN_A_SCHEMA[kind], ".".join(scene.namespace))
        if kind is Kind.LIST and not self._may(scene, scene.namespace, first=True):
            raise dialect.forbidden(scene.user, "listTable", ".".join(scene.namespace))
        if kind is Kind.DROP and not self._owns(scene, scene.identifier):
            raise dialect.forbidden(scene.user, "dropTable", str(scene.identifier))
        if kind is Kind.RENAME:
            source, target = named(json.loads(scene.request.body))
            if not (self._owns(scene, source) and self._may(scene, target.namespace, first=True)):
                raise dialect.forbidden(scene.user, "renameTable", str(source))

    def _may(self, scene: Scene, namespace: Levels, *, first: bool = False) -> bool:
        held = self.schemas.get(scene.user, set())
        asked = ".".join(namespace)
        if scene.temperament.flattens_listings:
            asked = namespace[0] if first else namespace[-1]
        return "*" in held or asked in held

    def _owns(self, scene: Scene, identifier: TableIdentifier) -> bool:
        row = scene.warehouse.live(identifier)
        return row is not None and row.owner == scene.user


def named(body: dict[str, dict[str, list[str]]]) -> tuple[TableIdentifier, TableIdentifier]:
    """The two names of a rename."""
    source, target = (TableIdentifier(tuple(body[end]["namespace"]), body[end]["name"]) for end in _ENDS)  # type: ignore[arg-type]
    return source, target


_ENDS: Final = ("source", "destination")
