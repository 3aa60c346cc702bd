"""Catalogs whose tables lie in an object store, among them any server that the environment names.

Responsible for: reaching the files of the tests' own tables through the same options as their writer, and leaving
nothing behind on somebody else's server.
Must not know: which tests there are.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow.fs as arrow
import pytest
from pyiceberg.exceptions import NoSuchTableError, RESTError

from tests.contract.capabilities import LACKS, NAMED_KINDS
from tests.contract.subjects import RealSubject, make_in_spite_of_errors
from tests.contract.summary import LEFT_BEHIND, NAMED
from worker.catalog_access import catalog_connection
from worker.identifiers import TableIdentifier
from worker.lakehouse.port import CatalogError
from worker.lakehouse.rest_errors import Call
from worker.lakehouse.rest_scratch import RestScratchCatalog
from worker.lakehouse.rest_wire import Session
from worker.lakehouse.storage import Storages
from worker.settings import load_settings

if TYPE_CHECKING:
    from worker.lakehouse.connection import CatalogConnection

PREFIX: Final = "REROOT_TEST_CATALOG_"
_OWN: Final = {"URL": "CATALOG_URI", "WAREHOUSE": "WAREHOUSE"}
"""The variables that are not called as the setting is."""


class RemoteSubject(RealSubject):
    """A catalog with its files in an object store."""

    scheme = ""

    def __init__(self, connection: CatalogConnection, warehouse: str, kind: str, prefix: str = "") -> None:
        super().__init__(connection, Path(), warehouse=warehouse, prefix=prefix)
        self.lacks = LACKS.get(kind, {})
        self._made: dict[str, Any] = {}
        """What opens the files of each table, by the table's location."""

    def make(self, identifier: TableIdentifier, *, rows: int = 10, snapshots: int = 1) -> None:
        try:
            make_in_spite_of_errors(self.writer, identifier, rows, snapshots)
        finally:
            # Also of one that was only half made: its files are ours to remove.
            with suppress(RESTError, NoSuchTableError):
                table = self.writer.load_table((*identifier.namespace, identifier.name))
                self._made[table.location()] = table.io

    def files(self) -> set[str]:
        return {path for location in self._made for path in self._files_of(location)}

    def lose(self, location: str) -> None:
        root = next(root for root in self._made if location.startswith(root))
        self._made[root].delete(location)

    def _folder_of(self, location: str) -> tuple[Any, str]:
        parts = urlsplit(location)
        return self._made[location].fs_by_scheme(parts.scheme, parts.netloc), parts.netloc + parts.path

    def _files_of(self, location: str) -> list[str]:
        system, path = self._folder_of(location)
        selector = arrow.FileSelector(path, recursive=True, allow_not_found=True)
        return [found.path for found in system.get_file_info(selector) if found.type == arrow.FileType.File]


class NamedSubject(RemoteSubject):
    """The server that the environment names. Its names are this run's own, and go when the test is over."""

    foreign = True

    def __init__(self) -> None:
        super().__init__(*named_server(), f"reroot_contract_{secrets.token_hex(4)}_")
        self._names: set[str] = set()

    def make(self, identifier: TableIdentifier, *, rows: int = 10, snapshots: int = 1) -> None:
        self._names.add(identifier.name)
        super().make(identifier, rows=rows, snapshots=snapshots)

    def close(self) -> None:
        session = Session(self._connection)
        catalog = Cleaner(self._warehouse, session, Storages())
        left = [level for level in (self.flat, self.place, self.place[:1]) if not catalog.emptied(level, self._names)]
        LEFT_BEHIND.extend(map(".".join, left))
        session.pool.clear()
        # One by one: a credential for a table's folder may not touch the folder above, as removing a folder does.
        for location in self._made:
            system, _ = self._folder_of(location)
            for path in self._files_of(location):
                system.delete_file(path)
        super().close()


class Cleaner(RestScratchCatalog):
    """Clears namespaces that are this run's own."""

    def emptied(self, namespace: tuple[str, ...], made: set[str]) -> bool:
        """Drop the namespace and every table in it, also ``made`` ones that no listing shows; whether it is gone."""
        try:
            # A listing may name another namespace than the one that was asked for: the first level alone.
            listed = {each.name for each in self.list_tables(namespace)}
        except CatalogError:
            listed = set()
        for name in sorted(listed | made):
            with suppress(CatalogError):
                self.drop(TableIdentifier(namespace, name))
        # Tables that the tests dropped stay as rows where drops are soft. Only Lakekeeper has these parameters.
        for parameters in ("", "?recursive=true&force=true&purge=false"):
            with suppress(CatalogError):
                where = self._namespace(namespace) + parameters
                self._send(Call.DROP_NAMESPACE, "DELETE", where, about=".".join(namespace))
                break
        try:
            return not self.namespace_exists(namespace)
        except CatalogError:
            return False


def is_named() -> bool:
    """Whether the environment names a server to ask instead of those that are started here."""
    return bool(_variables().get("URL"))


def named_label() -> str:
    """What the server is called in the results."""
    return NAMED + _variables().get("KIND", "other")


def named_server() -> tuple[CatalogConnection, str, str]:
    """The connection, the warehouse and the kind that the environment names; the test fails where they are no use."""
    told = _variables()
    kind = told.pop("KIND", "other")
    if kind not in NAMED_KINDS:
        pytest.fail(f"{PREFIX}KIND={kind}: should be one of {', '.join(NAMED_KINDS)}", pytrace=False)
    settings = load_settings({f"REROOT_{_OWN.get(name, 'CATALOG_' + name)}": value for name, value in told.items()})
    return catalog_connection(settings), told["WAREHOUSE"], kind


def _variables() -> dict[str, str]:
    # What to test against, not a setting of the program.
    environ = os.environ  # noqa: TID251 - see the line above
    return {name.removeprefix(PREFIX): value for name, value in environ.items() if name.startswith(PREFIX) and value}
