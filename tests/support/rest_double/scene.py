"""One request on its way through the double: where it goes, who asks, what was sent, and what there is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.rest_double.gravitino import Gravitino
from tests.support.rest_double.routes import levels_of
from tests.support.rest_double.wire import Answer
from worker.identifiers import TableIdentifier

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.rest_double.access import Rights
    from tests.support.rest_double.files import Files
    from tests.support.rest_double.routes import Kind, Route
    from tests.support.rest_double.temperament import Temperament
    from tests.support.rest_double.warehouse import Levels, Row, Warehouse
    from tests.support.rest_double.wire import Request


@dataclass(frozen=True, slots=True)
class Scene:
    """What the routes are written against."""

    request: Request
    route: Route
    temperament: Temperament
    warehouse: Warehouse
    files: Files
    user: str
    rights: Rights
    between: Callable[[Kind], None]
    """Called between what a request looks at and what it changes, without a lock: where races are made."""

    @property
    def kind(self) -> Kind:
        """What is asked."""
        return self.route.kind

    @property
    def namespace(self) -> Levels:
        """The namespace of the path."""
        return tuple(self._shown(level) for level in levels_of(self.route.namespace, self.temperament.separator))

    @property
    def identifier(self) -> TableIdentifier:
        """The table of the path."""
        [name] = levels_of(self.route.table, "/")
        return TableIdentifier(self.namespace, self._shown(name))

    def body(self) -> dict[str, Any]:
        """The JSON that was sent."""
        try:
            decoded = json.loads(self.request.body)
        except ValueError as error:
            raise self.temperament.dialect.malformed(str(error)) from error
        if not isinstance(decoded, dict):
            raise self.temperament.dialect.malformed("not an object")
        return decoded

    def need_namespace(self, namespace: Levels) -> None:
        """Refuse where the namespace is not there."""
        if not self.warehouse.has_namespace(namespace):
            raise self.temperament.dialect.namespace_missing(namespace)

    def need_live(self, identifier: TableIdentifier) -> Row:
        """The row of a table; refused where the namespace or the table is not there."""
        row = self.warehouse.live(identifier)
        if row is None:
            dialect = self.temperament.dialect
            if not self.warehouse.has_namespace(identifier.namespace):
                raise dialect.table_missing_in_no_namespace(identifier)
            raise dialect.table_missing(identifier)
        return row

    def mind_disabled(self) -> None:
        """Gravitino with authorization: done, though the catalog is disabled, and then refused."""
        if self.temperament.minds_disabled and not self.warehouse.in_use:
            assert isinstance(self.temperament.dialect, Gravitino)
            raise self.temperament.dialect.not_in_use(self.warehouse.name)

    def _shown(self, level: str) -> str:
        return level.replace("+", " ") if self.temperament.blank_for_plus else level


def json_answer(content: object) -> Answer:
    """A success with a body."""
    return Answer(200, json.dumps(content).encode())


NO_CONTENT = Answer(204)
