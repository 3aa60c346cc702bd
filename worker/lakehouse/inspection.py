"""One warehouse, looked at as a move would use it: the catalog, its tables, their storage.

Responsible for: the order of the questions, and those that every kind of catalog is asked.
Must not know: how what was found is shown, the settings.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final

from worker.identifiers import LEGACY_NAMESPACE
from worker.inspection import Findings
from worker.lakehouse.connection import CatalogConnection, CatalogType
from worker.lakehouse.port import CatalogError, ErrorCode, SoakError
from worker.lakehouse.scratch import READING_REMEDY, Scratch, ScratchCatalog, credential_of
from worker.lakehouse.storage import Storages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.inspection import Check

_TRIED: Final = 3
"""Tables of which one must be readable: a single one may be broken by itself."""


def inspect_warehouse(connection: CatalogConnection, warehouse: str, *, probe: bool) -> list[Check]:
    """The checks. With ``probe`` a scratch table is made and removed again; without it nothing is written."""
    findings = Findings(f"warehouse {warehouse}")
    with _opened(findings, connection, warehouse) as catalog:
        if catalog is not None and _sees_tables(findings, catalog) and probe:
            Scratch(catalog, findings).run()
    return findings.checks


@contextmanager
def _opened(findings: Findings, connection: CatalogConnection, warehouse: str) -> Iterator[ScratchCatalog | None]:
    """The catalog, once it is known to answer; None where it does not, and the findings say why."""
    if connection.problem is not None:
        findings.red("credentials", connection.problem, "mend the file, or REROOT_CATALOG_OVERRIDES")
        yield None
    elif connection.type is CatalogType.SQL:
        from worker.lakehouse import sql, sql_inspection  # noqa: PLC0415 - bring pyiceberg

        database = sql.Database(connection)
        try:
            yield sql_inspection.opened(findings, connection, warehouse, database)
        finally:
            database.close()
    else:
        from worker.lakehouse import rest_inspection, rest_scratch, rest_wire  # noqa: PLC0415 - bring urllib3

        session = rest_wire.Session(connection)
        try:
            usable = rest_inspection.RestInspection(findings, connection, session, warehouse).run()
            yield rest_scratch.RestScratchCatalog(warehouse, session, Storages()) if usable else None
        finally:
            session.pool.clear()


def _sees_tables(findings: Findings, catalog: ScratchCatalog) -> bool:
    """Look at the legacy namespace and read one table of it; whether the catalog answers at all."""
    try:
        if not catalog.namespace_exists((LEGACY_NAMESPACE,)):
            says = f"the namespace {LEGACY_NAMESPACE} is not in sight: nothing is to be moved here, or it is hidden"
            findings.yellow("tables", says, "see what the client may see; reroot doctor --probe tries the rest")
            return True
        names = list(islice(catalog.list_tables((LEGACY_NAMESPACE,)), _TRIED))
    except CatalogError as error:
        findings.red("tables", str(error), "grant to see and list namespaces and tables")
        return error.code not in {ErrorCode.UNAVAILABLE, ErrorCode.UNAUTHORIZED}
    if not names:
        findings.yellow("tables", f"{LEGACY_NAMESPACE} is empty: no table to read", "reroot doctor --probe makes one")
        return True
    findings.green("tables", f"{LEGACY_NAMESPACE} is seen and listed")
    problems = []
    for name in names:
        try:
            table = catalog.load(name)
            catalog.soak(table)
        except (CatalogError, SoakError) as error:
            problems.append(f"{name}: {error}")
        else:
            findings.green("reading", f"{name} is read to its data {credential_of(table)}")
            return True
    findings.red("reading", problems[0], READING_REMEDY)
    return True
