"""Opens one file of a table as a reader does: Parquet, ORC, Avro, or a deletion vector in a Puffin file.

Responsible for: what is read of each format, and what counts as whole. Constant cost, whatever the file's size.
Must not know: which file of the table it is and why it was chosen.

Everything raises ReadError, or whatever the file's content provokes in a decoder.
"""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from worker.lakehouse.avro import ENCRYPTED, AvroFile
from worker.lakehouse.port import SoakFault
from worker.lakehouse.reading import ReadError, read_error

if TYPE_CHECKING:
    from worker.lakehouse.manifests import DataFile
    from worker.lakehouse.storage import Storage

_WHOLE_FILE: Final = 256 * 1024
"""Bytes up to which a file is read in one request instead of several."""
_MOST_READ: Final = 64 * 1024 * 1024
"""Bytes that are read of a file at most: a footer of a very wide table has some of them."""
_WHOLE_CHUNK: Final = 128 * 1024
_WHOLE_ROWS: Final = 64 * 1024
_LARGEST_CHUNK: Final = 16 * 1024 * 1024
"""Bytes, rows and decompressed bytes up to which a column chunk is decoded whole; else its first rows are."""
_FIRST_ROWS: Final = 1024
_BUFFER: Final = 64 * 1024

_PUFFIN: Final = b"PFA1"
_VECTOR: Final = b"\xd1\xd3\x39\x64"
"""How a deletion vector's bitmap starts, behind the four bytes of its length."""
_AROUND_BITMAP: Final = 8
"""Bytes of the length before a bitmap, and of the checksum behind it; the length counts neither."""


def open_file(file: DataFile, storage: Storage) -> None:
    """Read ``file`` as far as it takes to know that a reader can."""
    try:
        with storage.open(file.path, most=_MOST_READ) as stream:
            _READERS.get(file.format, _unknown)(file, _whole_if_short(file, stream))
    except Exception as failure:
        error = read_error(failure)
        if file.encrypted and error.fault is SoakFault.DAMAGED:
            raise ReadError(SoakFault.UNSUPPORTED, f"cannot be read: it is encrypted ({error.why})") from failure
        raise error from failure


def _whole_if_short(file: DataFile, stream: BinaryIO) -> BinaryIO:
    """The stream; of a file that is short, as its manifest says, the content. What the manifest says may be wrong."""
    if file.size <= _WHOLE_FILE:
        content = stream.read(_WHOLE_FILE + 1)
        if len(content) <= _WHOLE_FILE:
            return io.BytesIO(content)
        stream.seek(0)
    return stream


def _unknown(file: DataFile, _stream: BinaryIO) -> None:
    raise ReadError(SoakFault.UNSUPPORTED, f"cannot be read: its format {file.format} is not known here")


def _need_start(file: DataFile, stream: BinaryIO, start: bytes) -> None:
    found = stream.read(len(start))
    if found == ENCRYPTED[: len(start)]:
        raise ReadError(SoakFault.UNSUPPORTED, "cannot be read: it is encrypted")
    if found != start:
        raise _not_what_it_says(file)
    stream.seek(0)


def _not_what_it_says(file: DataFile) -> ReadError:
    return ReadError(SoakFault.DAMAGED, f"is not the {file.format} file that its manifest says, or it is truncated")


def _need_rows(file: DataFile, rows: int) -> None:
    if rows != file.record_count:
        raise ReadError(SoakFault.DAMAGED, f"has {rows} rows, its manifest says {file.record_count}")


def _parquet(file: DataFile, stream: BinaryIO) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415 - 40 MB that the producer and the sweeper never need

    # Without pre-buffering and with a small buffer a long chunk is read only as far as its first pages.
    parquet: Any = pq.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False)
    _need_rows(file, parquet.metadata.num_rows)
    if parquet.metadata.num_row_groups == 0 or parquet.metadata.num_columns == 0:
        return
    group = parquet.metadata.row_group(0)
    smallest = min((group.column(n) for n in range(group.num_columns)), key=lambda column: column.total_compressed_size)
    whole = (
        smallest.total_compressed_size <= _WHOLE_CHUNK
        and smallest.total_uncompressed_size <= _LARGEST_CHUNK
        and group.num_rows <= _WHOLE_ROWS
    )
    batches = parquet.iter_batches(
        batch_size=max(1, group.num_rows) if whole else _FIRST_ROWS,
        row_groups=[0],
        columns=[smallest.path_in_schema],
        use_threads=False,
    )
    rows = next((batch.num_rows for batch in batches), 0)
    if rows == 0 and group.num_rows > 0:
        raise ReadError(SoakFault.DAMAGED, f"gives no rows, its footer says {group.num_rows}")


def _orc(file: DataFile, stream: BinaryIO) -> None:
    from pyarrow import orc  # noqa: PLC0415 - see above

    _need_start(file, stream, b"ORC")
    _need_rows(file, orc.ORCFile(stream).nrows)


def _avro(file: DataFile, stream: BinaryIO) -> None:
    """The first block; its records are not decoded, because their schema is the table's own."""
    avro = AvroFile(stream)
    first = next(avro.blocks(), None)
    if first is None:
        _need_rows(file, 0)
    if not avro.ends_whole(stream):
        raise _not_what_it_says(file)


def _puffin(file: DataFile, stream: BinaryIO) -> None:
    """The file's two ends, and the bitmap that the manifest names: whole where it is short, else how it begins."""
    _need_start(file, stream, _PUFFIN)
    stream.seek(-len(_PUFFIN), io.SEEK_END)
    if stream.read(len(_PUFFIN)) != _PUFFIN:
        raise _not_what_it_says(file)
    if file.offset is None or file.length is None:
        raise ReadError(SoakFault.DAMAGED, "cannot be read: its manifest does not say where in it the vector is")
    stream.seek(file.offset)
    blob = stream.read(min(file.length, _WHOLE_CHUNK))
    bitmap = blob[4:-4]
    wrong = (
        int.from_bytes(blob[:4]) != file.length - _AROUND_BITMAP
        or not bitmap.startswith(_VECTOR)
        or (len(blob) == file.length and zlib.crc32(bitmap) != int.from_bytes(blob[-4:]))
    )
    if wrong:
        raise ReadError(SoakFault.DAMAGED, f"has no whole deletion vector at byte {file.offset}")


_READERS: Final = {"PARQUET": _parquet, "ORC": _orc, "AVRO": _avro, "PUFFIN": _puffin}
