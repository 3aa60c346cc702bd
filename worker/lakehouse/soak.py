"""The proof that a reader of a name finds a whole table: from its metadata file down to a page of data.

Responsible for: what is read, in which order, and what counts as right. Constant cost, whatever the table's size: the
metadata file, the manifest list, one manifest, one footer, one column chunk.
Must not know: which catalog showed the table, how storage is opened.

A catalog's answer alone proves nothing: some serve a table from their database after every file of it is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from worker.lakehouse import avro, manifests, metadata
from worker.lakehouse.locations import folder
from worker.lakehouse.manifests import DataFile, Manifest
from worker.lakehouse.port import SoakError, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.lakehouse.storage import Storage

_WHOLE_FILE: Final = 256 * 1024
"""Bytes up to which a data file is read in one request instead of several."""
_WHOLE_CHUNK: Final = 128 * 1024
_WHOLE_ROWS: Final = 64 * 1024
"""Bytes and rows up to which a column chunk is decoded whole; of a longer one only the first rows are."""
_FIRST_ROWS: Final = 1024
_BUFFER: Final = 64 * 1024
_MANIFESTS_TRIED: Final = 3
"""Manifests that are opened where an old writer did not tell which of them hold live files."""

_STARTS: Final = {"ORC": b"ORC", "AVRO": b"Obj\x01"}
"""How data files start that are not Parquet; of those only this is looked at."""


def soak(table: Table, storage: Storage) -> None:
    """Read ``table`` as a reader does. Raises SoakError, which says what a reader would stumble over."""
    document = _metadata(table, storage)
    snapshot = document.current_snapshot()
    if snapshot is None:
        return
    lines = _manifest_lines(snapshot, storage)
    _compare_rows(snapshot.total_records(), lines)
    file = _first_live_file(lines, storage)
    if file is not None:
        _open_data(file, storage)


def _read(what: str, location: str, storage: Storage) -> bytes:
    try:
        return storage.read(location)
    except FileNotFoundError as error:
        raise SoakError(f"{what} {location} is not in storage") from error
    except (OSError, ValueError) as error:
        raise SoakError(f"{what} {location} cannot be read: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _metadata(table: Table, storage: Storage) -> metadata.MetadataDocument:
    where = table.metadata_location
    content = _read("the metadata file", where, storage)
    try:
        document = metadata.decode(content)
        document.current_snapshot()
    except metadata.MetadataError as error:
        raise SoakError(f"the metadata file {where} cannot be understood: {error}") from error
    found = (
        ("uuid", (document.table_uuid or "").lower(), table.uuid),
        ("current snapshot", document.snapshot_id(), table.snapshot_id),
        ("format version", document.format_version, table.format_version),
        ("location", folder(document.location), folder(table.location)),
    )
    for name, in_file, told in found:
        if in_file != told:
            raise SoakError(f"the metadata file {where} has {name} {in_file}, the catalog says {told}")
    return document


def _manifest_lines(snapshot: metadata.SnapshotDocument, storage: Storage) -> list[Manifest]:
    if snapshot.manifest_list is None:
        return [
            Manifest(path=path, length=0, holds_data=True, live_files=None, live_rows=None)
            for path in snapshot.manifests or ()
        ]
    content = _read("the manifest list", snapshot.manifest_list, storage)
    try:
        return manifests.manifests(content)
    except avro.AvroError as error:
        raise SoakError(f"the manifest list {snapshot.manifest_list} cannot be understood: {error}") from error


def _compare_rows(told: int | None, lines: list[Manifest]) -> None:
    counts = [line.live_rows for line in lines if line.holds_data]
    if told is None or any(count is None for count in counts):
        return
    listed = sum(count for count in counts if count is not None)
    if listed != told:
        raise SoakError(f"the snapshot's summary says {told} rows, its manifest list {listed}")


def _first_live_file(lines: list[Manifest], storage: Storage) -> DataFile | None:
    candidates = sorted(
        (line for line in lines if line.holds_data and line.live_files != 0),
        key=lambda line: (line.live_files is None, line.length),
    )
    for line in candidates[:_MANIFESTS_TRIED]:
        file = next(_live_files(line, storage), None)
        if file is not None:
            return file
        if line.live_files is not None:
            raise SoakError(f"the manifest {line.path} holds no live file, its manifest list says {line.live_files}")
    return None


def _live_files(line: Manifest, storage: Storage) -> Iterator[DataFile]:
    content = _read("the manifest", line.path, storage)
    try:
        yield from manifests.live_files(content)
    except avro.AvroError as error:
        raise SoakError(f"the manifest {line.path} cannot be understood: {error}") from error


def _open_data(file: DataFile, storage: Storage) -> None:
    start = _STARTS.get(file.format)
    if start is not None:
        _check_start(file, start, storage)
        return
    import pyarrow as pa  # noqa: PLC0415 - 40 MB that the producer and the sweeper never need

    try:
        if file.size <= _WHOLE_FILE:
            _decode_parquet(file, pa.BufferReader(storage.read(file.path)))
        else:
            with storage.open(file.path) as stream:
                _decode_parquet(file, stream)
    except FileNotFoundError as error:
        raise SoakError(f"the data file {file.path} is not in storage") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SoakError(f"the data file {file.path} cannot be read: {_first_line(error)}") from error


def _check_start(file: DataFile, start: bytes, storage: Storage) -> None:
    try:
        with storage.open(file.path) as stream:
            found = stream.read(len(start))
    except OSError as error:
        raise SoakError(f"the data file {file.path} cannot be read: {_first_line(error)}") from error
    if found != start:
        raise SoakError(f"the data file {file.path} is not the {file.format} file that its manifest says")


def _decode_parquet(file: DataFile, source: Any) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415 - see above

    # Without pre-buffering and with a small buffer a long chunk is read only as far as its first pages.
    parquet = pq.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False)
    if parquet.metadata.num_rows != file.record_count:
        raise SoakError(
            f"the data file {file.path} has {parquet.metadata.num_rows} rows, its manifest says {file.record_count}"
        )
    if parquet.metadata.num_row_groups == 0 or parquet.metadata.num_columns == 0:
        return
    group = parquet.metadata.row_group(0)
    smallest = min((group.column(n) for n in range(group.num_columns)), key=lambda column: column.total_compressed_size)
    whole = smallest.total_compressed_size <= _WHOLE_CHUNK and group.num_rows <= _WHOLE_ROWS
    batches = parquet.iter_batches(
        batch_size=max(1, group.num_rows) if whole else _FIRST_ROWS,
        row_groups=[0],
        columns=[smallest.path_in_schema],
        use_threads=False,
    )
    rows = next((batch.num_rows for batch in batches), 0)
    if rows == 0 and group.num_rows > 0:
        raise SoakError(f"the data file {file.path} gives no rows, its footer says {group.num_rows}")
