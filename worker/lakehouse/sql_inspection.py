"""What an SQL catalog is asked in an inspection: whether its database answers, and which one it is.

Responsible for: these questions, and a table and namespaces of the inspection's own.
Must not know: what moves do with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.schema import Schema

from worker.lakehouse.port import CatalogError, ErrorCode
from worker.lakehouse.scratch import SCHEMA, ScratchCatalog
from worker.lakehouse.sql import Database, SqlLakehouseCatalog, translated
from worker.lakehouse.storage import Storages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.identifiers import TableIdentifier
    from worker.inspection import Findings
    from worker.lakehouse.connection import CatalogConnection
    from worker.lakehouse.port import Table


class SqlScratchCatalog(SqlLakehouseCatalog, ScratchCatalog):
    """One warehouse."""

    def create_table(self, identifier: TableIdentifier) -> None:
        """Write a metadata file, insert its row."""
        with translated(f"create the table {identifier}"):
            self._opened().create_table((*identifier.namespace, identifier.name), Schema.model_validate(SCHEMA))

    def drop_namespace(self, namespace: tuple[str, ...]) -> None:
        """Delete its rows."""
        with translated(f"drop the namespace {'.'.join(namespace)}"):
            self._opened().drop_namespace(namespace)

    def storage_options(self, table: Table) -> Mapping[str, str]:  # noqa: ARG002 - the protocol's signature
        """The settings' own: this catalog hands out none."""
        return self._properties


def opened(
    findings: Findings, connection: CatalogConnection, warehouse: str, database: Database
) -> ScratchCatalog | None:
    """The warehouse's catalog, once its database has answered; None where it has not."""
    catalog = SqlScratchCatalog(warehouse, connection, database, Storages())
    try:
        catalog.namespace_exists(("datasets",))
    except CatalogError as error:
        away = error.code is ErrorCode.UNAVAILABLE
        findings.red("alive", str(error), "see that its database runs, and REROOT_CATALOG_URI", away=away)
        return None
    findings.green("alive", f"its {database.engine().dialect.name} database answers")
    findings.green("offers", "register, rename, drop")
    return catalog
