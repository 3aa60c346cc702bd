"""The proof that a reader of a name finds a whole table: from its metadata file down to a page of data.

Responsible for: what is read, in which order, and what counts as right. Constant cost, whatever the table's size: the
metadata file, the manifest list, one manifest and one data file; the same again for each kind of delete file.
Must not know: which catalog showed the table, how storage is opened, what a file of a format looks like.

A catalog's answer alone proves nothing: some serve a table from their database after every file of it is gone.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from worker.lakehouse import manifests, metadata
from worker.lakehouse.datafiles import open_file
from worker.lakehouse.locations import folder
from worker.lakehouse.manifests import DataFile, Manifest
from worker.lakehouse.port import SoakError, SoakFault, Table
from worker.lakehouse.reading import ReadError, reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.lakehouse.storage import Storage

_MANIFESTS_TRIED: Final = 3
"""Manifests that are opened where an old writer did not tell which of them hold live files."""
_DELETE_MANIFESTS_TRIED: Final = 4
_DELETES_TRIED: Final = 1000
"""Manifests of delete files, and files in each, among which one of each kind is looked for."""
_KINDS_OF_DELETES: Final = 3


def soak(table: Table, storage: Storage, *, accept_unsupported: bool = False) -> tuple[str, ...]:
    """Read ``table`` as a reader does. Returns warnings. Raises SoakError, which says what a reader would not find."""
    soaking = _Soaking(storage, accept_unsupported=accept_unsupported)
    with soaking.passing():
        soaking.run(table)
    return tuple(soaking.warnings)


@dataclass(slots=True)
class _Soaking:
    storage: Storage
    accept_unsupported: bool
    warnings: list[str] = field(default_factory=list)

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Make a warning of what our reader cannot read, where an operator has accepted that."""
        try:
            yield
        except SoakError as error:
            if error.fault is not SoakFault.UNSUPPORTED or not self.accept_unsupported:
                raise
            self.warnings.append(f"accepted by an operator: {error}")

    def run(self, table: Table) -> None:
        snapshot = self._document(table).current_snapshot()
        if snapshot is None:
            return
        lines = self._lines(snapshot)
        self._compare_rows(snapshot.total_records(), lines)
        with self.passing():
            file = self._first_live(lines)
            if file is not None:
                self._open(file)
        with self.passing():
            for file in self._deletes(lines):
                with self.passing():
                    self._open(file)

    def _document(self, table: Table) -> metadata.MetadataDocument:
        where = f"the metadata file {table.metadata_location}"
        with reading(where):
            content = self.storage.read(table.metadata_location)
            try:
                document = metadata.decode(content)
                document.current_snapshot()
            except metadata.MetadataError as error:
                raise ReadError(SoakFault.DAMAGED, f"cannot be understood: {error}") from error
        found = (
            ("uuid", (document.table_uuid or "").lower(), table.uuid),
            ("current snapshot", document.snapshot_id(), table.snapshot_id),
            ("format version", document.format_version, table.format_version),
            ("location", folder(document.location), folder(table.location)),
        )
        for name, in_file, told in found:
            if in_file != told:
                raise SoakError(SoakFault.DAMAGED, f"{where} has {name} {in_file}, the catalog says {told}")
        return document

    def _lines(self, snapshot: metadata.SnapshotDocument) -> list[Manifest]:
        if snapshot.manifest_list is None:
            return [
                Manifest(path=path, length=0, holds_data=True, live_files=None, live_rows=None)
                for path in snapshot.manifests or ()
            ]
        with reading(f"the manifest list {snapshot.manifest_list}"), self.storage.open(snapshot.manifest_list) as file:
            return manifests.manifests(file)

    def _compare_rows(self, told: int | None, lines: list[Manifest]) -> None:
        """Writers are known that count wrongly; no reader reads ``total-records``."""
        counts = [line.live_rows for line in lines if line.holds_data]
        if told is None or any(count is None for count in counts):
            return
        listed = sum(count for count in counts if count is not None)
        if listed != told:
            self.warnings.append(f"the snapshot's summary says {told} rows, its manifest list {listed}")

    def _first_live(self, lines: list[Manifest]) -> DataFile | None:
        for line in _candidates(lines, data=True)[:_MANIFESTS_TRIED]:
            file = next(self._live(line, 1), None)
            if file is not None:
                return file
        return None

    def _deletes(self, lines: list[Manifest]) -> list[DataFile]:
        """One live file of each kind of deletes, as far as a bounded search finds them."""
        found: dict[str, DataFile] = {}
        for line in _candidates(lines, data=False)[:_DELETE_MANIFESTS_TRIED]:
            for file in self._live(line, _DELETES_TRIED):
                found.setdefault(file.kind, file)
                if len(found) == _KINDS_OF_DELETES:
                    break
        return list(found.values())

    def _live(self, line: Manifest, most: int) -> Iterator[DataFile]:
        """Its first live files. An exception of its consumer is none of the manifest's."""
        what = f"the manifest {line.path}"
        with reading(what), self.storage.open(line.path) as file:
            files = list(islice(manifests.live_files(file), most))
        if not files and line.live_files is not None:
            says = f"{what} holds no live file, its manifest list says {line.live_files}"
            raise SoakError(SoakFault.DAMAGED, says)
        yield from files

    def _open(self, file: DataFile) -> None:
        with reading(f"the {file.kind} {file.path}"):
            open_file(file, self.storage)


def _candidates(lines: list[Manifest], *, data: bool) -> list[Manifest]:
    """The manifests that may hold live files: those that are known to come first, the shortest of them first."""
    return sorted(
        (line for line in lines if line.holds_data is data and line.live_files != 0),
        key=lambda line: (line.live_files is None, line.length),
    )
