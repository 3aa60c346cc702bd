"""A table of the inspection's own: what a catalog and its storage allow is tried on it, and nothing of it stays.

Responsible for: making it, trying a second name and a rename, writing beside it, and clearing it all away again.
Must not know: which catalog it is, how what was found is shown.

Its namespace has a name that nobody else uses. Names are dropped without purging, as everywhere; the one metadata file
that the table has is removed by name.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from worker.identifiers import TableIdentifier
from worker.lakehouse.cleaning import told
from worker.lakehouse.locations import local_path
from worker.lakehouse.port import Catalog, CatalogError, ErrorCode, SoakError, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.inspection import Findings

PREFIX: Final = "reroot_doctor_"
SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "n", "required": False, "type": "long"}],
}
_OWN_TABLE: Final = (
    "rename and drop were tried on a table that this worker made itself;"
    " for tables of other owners each worker process asks once, before its first flip here"
)
_NAME: Final = "scratch"
_GONE: Final = frozenset({ErrorCode.TABLE_MISSING, ErrorCode.NAMESPACE_MISSING})


class ScratchCatalog(Catalog, Protocol):
    """A catalog in which tables and namespaces can be made and removed."""

    def create_table(self, identifier: TableIdentifier) -> None:
        """Make an empty table of ``SCHEMA``. Raises CatalogError."""
        ...

    def drop_namespace(self, namespace: tuple[str, ...]) -> None:
        """Drop an empty namespace. Raises CatalogError."""
        ...

    def storage_options(self, table: Table) -> Mapping[str, str]:
        """How a reader of this table opens its files."""
        ...


class Scratch:
    """One run of the trial."""

    def __init__(self, catalog: ScratchCatalog, findings: Findings) -> None:
        self._catalog = catalog
        self._findings = findings
        own = PREFIX + secrets.token_hex(4)
        # Nothing in common with the place: a server was seen that answers rightly where the first level is the same.
        self._flat = (own,)
        self._place = (own + "_place", "inner")
        self._old = TableIdentifier(self._flat, _NAME)
        self._new = TableIdentifier(self._place, _NAME)
        self._renamed = TableIdentifier(self._place, _NAME + "_renamed")
        self._table: Table | None = None

    def run(self) -> None:
        """Try everything, then clear it away, whatever happened."""
        try:
            if self._make():
                self._read()
                self._write()
                registered = self._register()
                renamed = self._rename()
                self._findings.green("rights", _OWN_TABLE)
                if not registered and not renamed:
                    says = "neither register nor rename works: no table can be moved"
                    self._findings.red("moves", says, "grant what the lines above name, or another server version")
        finally:
            self._clear()

    def _make(self) -> bool:
        try:
            for namespace in (self._flat, self._place[:1], self._place):
                self._catalog.create_namespace(namespace)
        except CatalogError as error:
            self._findings.red("namespaces", str(error), "grant the creation of namespaces, two levels deep")
            return False
        self._findings.green("namespaces", "two levels can be made")
        try:
            self._catalog.create_table(self._old)
        except CatalogError as error:
            refusal: CatalogError | None = error
        else:
            refusal = None
        # A server may make it and answer 500, or answer 200 and not have made it: the load decides.
        self._table = self._seen(self._old)
        if self._table is None:
            says = str(refusal) if refusal else "a table was made, and does not stand"
            self._findings.red("create", says, "grant the creation of tables; see the catalog's own storage")
            return False
        if refusal is not None:
            says = f"done, although the answer was an error: {refusal}"
            self._findings.yellow("create", says, "births look after each error; a newer server may mend it")
        return True

    def _read(self) -> None:
        assert self._table is not None
        try:
            self._catalog.soak(self._table)
        except (SoakError, CatalogError) as error:
            self._findings.red("reading", str(error), READING_REMEDY)
        else:
            self._findings.green("reading", f"a new table's metadata file is read {credential_of(self._table)}")

    def _write(self) -> None:
        from pyiceberg.io import load_file_io  # noqa: PLC0415 - 60 MB that nothing else here needs

        assert self._table is not None
        location = f"{self._table.location.rstrip('/')}/data/reroot-doctor"
        remedy = "moves write nothing; births do, and need it"
        try:
            files = load_file_io(dict(self._catalog.storage_options(self._table)))
            with files.new_output(location).create(overwrite=True) as stream:
                stream.write(b"reroot doctor")
            files.delete(location)
        except (OSError, ValueError) as error:
            self._findings.yellow("writing", f"{location} cannot be written: {told(error)}", remedy)
        else:
            self._findings.green("writing", "a file can be written beside the table, and removed")

    def _register(self) -> bool:
        """Whether a second name leads to the table now."""
        assert self._table is not None
        location = self._table.metadata_location
        refusal = _attempted(lambda: self._catalog.register(self._new, location))
        second = self._seen(self._new)
        if second is not None and second.uuid == self._table.uuid:
            if refusal is None:
                self._findings.green("two names", "may hold one table: tables are moved by register")
            else:
                says = f"may hold one table, although registering answers an error: {refusal}"
                self._findings.yellow("two names", says, "moves look after each error; a newer server may mend it")
            return True
        if refusal is not None and refusal.code is ErrorCode.ALREADY_EXISTS:
            self._findings.green("two names", "may not hold one table: tables are moved by rename")
        else:
            says = str(refusal) if refusal else "a registration was accepted, and nothing stands there"
            self._findings.yellow("two names", says, "grant it, or set REROOT_STRATEGY=rename")
        return False

    def _rename(self) -> bool:
        """Whether the table stands under the name that it was renamed to."""
        assert self._table is not None
        refusal = _attempted(lambda: self._catalog.rename(self._old, self._renamed))
        seen = self._seen(self._renamed)
        if seen is not None and seen.uuid == self._table.uuid:
            self._findings.green("rename", "works across namespaces")
            return True
        remedy = "withdrawing is a look and a DELETE then: let nothing write past the dataset's lock"
        self._findings.yellow("rename", str(refusal or "was accepted, and nothing stands there"), remedy)
        return False

    def _seen(self, identifier: TableIdentifier) -> Table | None:
        try:
            return self._catalog.load(identifier)
        except CatalogError:
            return None

    def _clear(self) -> None:
        tables = [str(name) for name in (self._new, self._renamed, self._old) if not self._removed(name)]
        levels = (self._place, self._place[:1], self._flat)
        namespaces = [".".join(level) for level in levels if not self._emptied(level)]
        if not tables and not namespaces:
            if self._table is None or self._file_removed(self._table):
                self._findings.green("clearing", "nothing of the trial is left")
            return
        # A table may come back to a name that stays: its file stays with it.
        file = [] if self._table is None else [self._table.metadata_location]
        remedy = "remove them by hand" if tables else KEPT_REMEDY
        self._findings.yellow("clearing", f"left behind: {', '.join([*tables, *namespaces, *file])}", remedy)

    def _removed(self, name: TableIdentifier) -> bool:
        refusal = _attempted(lambda: self._catalog.drop(name))
        return refusal is None or refusal.code in _GONE or self._seen(name) is None

    def _emptied(self, namespace: tuple[str, ...]) -> bool:
        refusal = _attempted(lambda: self._catalog.drop_namespace(namespace))
        if refusal is None or refusal.code is ErrorCode.NAMESPACE_MISSING:
            return True
        try:
            # A server was seen that drops it, and then answers 500.
            return not self._catalog.namespace_exists(namespace)
        except CatalogError:
            return False

    def _file_removed(self, table: Table) -> bool:
        from pyiceberg.io import load_file_io  # noqa: PLC0415 - see above

        try:
            load_file_io(dict(self._catalog.storage_options(table))).delete(table.metadata_location)
        except (OSError, ValueError) as error:
            says = f"left behind: {table.metadata_location}: {told(error)}"
            self._findings.yellow("clearing", says, "remove it by hand")
            return False
        _remove_folders(table)
        return True


KEPT_REMEDY: Final = "drop them by hand; where a dropped table is kept for a while, drop them once it has expired"
READING_REMEDY: Final = "let the catalog hand out credentials, or set s3.* in REROOT_CATALOG_PROPERTIES"


def credential_of(table: Table) -> str:
    """With whose credential the table's files are opened, as people say it."""
    if local_path(table.metadata_location) is not None:
        return "from this machine's disk"
    handed_out = any(name.endswith(("access-key-id", "session-token", "sas-token", ".token")) for name in table.storage)
    return "with what the catalog hands out" if handed_out else "with the settings' own options"


def _remove_folders(table: Table) -> None:
    """On a disk, unlike in an object store, folders stay behind, and so does the checksum that Hadoop writes beside."""
    metadata_file, root = local_path(table.metadata_location), local_path(table.location)
    if metadata_file is None or root is None:
        return
    file = Path(metadata_file)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    for folder in (Path(root, "data"), file.parent, Path(root), Path(root).parent):
        try:
            folder.rmdir()
        except OSError:
            continue


def _attempted(call: Callable[[], object]) -> CatalogError | None:
    try:
        call()
    except CatalogError as error:
        return error
    return None
