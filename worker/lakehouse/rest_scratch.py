"""A REST catalog in which an inspection may make and remove a table of its own.

Responsible for: the requests that moves never send. Must not know: what they are sent for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.lakehouse.rest import RestCatalog
from worker.lakehouse.rest_errors import Call
from worker.lakehouse.scratch import SCHEMA, ScratchCatalog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.identifiers import TableIdentifier
    from worker.lakehouse.port import Table


class RestScratchCatalog(RestCatalog, ScratchCatalog):
    """One warehouse."""

    def create_table(self, identifier: TableIdentifier) -> None:
        """POST to the namespace's ``tables``."""
        body = {"name": identifier.name, "schema": SCHEMA, "properties": {}, "stage-create": False}
        where = f"{self._namespace(identifier.namespace)}/tables"
        self._send(Call.CREATE_TABLE, "POST", where, about=str(identifier), body=body)

    def drop(self, identifier: TableIdentifier) -> None:
        """DELETE the table, not purged, and at once.

        Lakekeeper keeps the row of a table that is dropped softly, and drops no namespace that has one. ``force`` drops
        the row; other servers ignore it.
        """
        where = self._table(identifier) + "?purgeRequested=false&force=true"
        self._send(Call.DROP, "DELETE", where, about=str(identifier))

    def drop_namespace(self, namespace: tuple[str, ...]) -> None:
        """DELETE the namespace."""
        self._send(Call.DROP_NAMESPACE, "DELETE", self._namespace(namespace), about=".".join(namespace))

    def storage_options(self, table: Table) -> Mapping[str, str]:
        """What the settings, the catalog and the table's load say together."""
        return self._options(table)
