"""Where a table's files lie, and how they are opened for reading.

Responsible for: opening files with the options that the catalog handed out for them, telling "certainly not there"
from "cannot say", the limit of what is read of one file, and counting. Nothing here writes.
Must not know: what is in the files.

Files on this machine's own disk are opened directly, and only where the warehouse lies there: paths are written by
tenants. Everything else goes through pyiceberg's FileIO, which is only imported when it is needed.
"""

from __future__ import annotations

import io
import os
import stat
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from worker.lakehouse.cleaning import told
from worker.lakehouse.locations import is_local, local_path
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind, SoakFault
from worker.lakehouse.reading import ReadError, read_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.io import FileIO

_FILE_IOS: Final = 16
"""Clients for storage that one process keeps, one for each set of options that warehouses have."""

LARGEST: Final = 256 * 1024 * 1024
"""Bytes that are read of one file at most, and that its compressed content may become."""

_PIECE: Final = 16 * 1024 * 1024
"""Bytes that are asked for at once where a whole file is read."""


class Storage:
    """The files of tables that share one set of storage options. ``opens`` and ``bytes_read`` count.

    ``local``: whether locations on this machine's own disk are opened, too.
    """

    def __init__(self, options: Mapping[str, str], *, local: bool = True) -> None:
        self._options = dict(options)
        self._local = local
        self._io: FileIO | None = None
        self.opens = 0
        self.bytes_read = 0

    def read(self, location: str) -> bytes:
        """A whole file. Raises ReadError."""
        with self.open(location) as stream:
            return stream.read()

    def open(self, location: str, *, most: int = LARGEST) -> BinaryIO:
        """A file, to be read in pieces, of which no more than ``most`` bytes are read. Raises ReadError."""
        self.opens += 1
        try:
            raw = self._on_disk(location) if is_local(location) else self._remote(location)
        except Exception as failure:
            raise read_error(failure) from failure
        return cast("BinaryIO", _Counted(raw, self, most))

    def certainly_missing(self, location: str, *, beside: str) -> bool:
        """Whether storage has no file at ``location``, shown by its having one at ``beside``.

        A mount that is gone or a bucket that is out of reach looks like a missing file; the other file tells.
        Raises CatalogError where storage does not answer.
        """
        return self._exists(location) is False and self._exists(beside) is True

    def _exists(self, location: str) -> bool | None:
        try:
            if is_local(location):
                return stat.S_ISREG(os.stat(self._path(location)).st_mode)  # noqa: PTH116 - as in _on_disk
            return self._client().new_input(location).exists()
        except Exception as failure:
            error = read_error(failure)
            if error.fault is SoakFault.OUTAGE:
                raise CatalogError(ErrorCode.STORAGE_AWAY, ErrorKind.TRANSIENT, f"{location} {error.why}") from failure
            return False if error.fault is SoakFault.MISSING else None

    def _on_disk(self, location: str) -> Any:
        path = self._path(location)
        # A device or a pipe never ends, or never begins.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - a Path costs as much again
            raise ReadError(SoakFault.DAMAGED, "cannot be read: it is no regular file")
        return open(path, "rb", buffering=0)  # noqa: PTH123 - see above

    def _path(self, location: str) -> str:
        path = local_path(location)
        if path is None:
            raise ReadError(SoakFault.DAMAGED, "cannot be read: its location has no scheme and no root")
        if not self._local:
            why = "cannot be read: it lies on a local disk, and this warehouse does not (REROOT_WAREHOUSE_LOCATION)"
            raise ReadError(SoakFault.UNSUPPORTED, why)
        return path

    def _remote(self, location: str) -> Any:
        try:
            file = self._client().new_input(location)
        except Exception as failure:
            error = read_error(failure)
            if error.fault is not SoakFault.DAMAGED:
                raise error from failure
            why = f"cannot be read: there is no client for its scheme, or its options are not set: {told(failure)}"
            raise ReadError(SoakFault.UNSUPPORTED, why) from failure
        return file.open(seekable=True)

    def _client(self) -> FileIO:
        if self._io is None:
            from pyiceberg.io import load_file_io  # noqa: PLC0415 - 60 MB that a local warehouse never needs

            self._io = load_file_io(self._options)
        return self._io


class _Counted(io.RawIOBase):
    """A file that counts what is read of it, up to a limit. Raises ReadError."""

    def __init__(self, raw: Any, storage: Storage, most: int) -> None:
        self._raw = raw
        self._storage = storage
        self._most = self._left = most

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(_PIECE), b""))
        try:
            content: bytes = self._raw.read(min(size, self._left + 1))
        except Exception as failure:
            raise read_error(failure) from failure
        self._storage.bytes_read += len(content)
        self._left -= len(content)
        if self._left < 0:
            raise ReadError(SoakFault.UNSUPPORTED, f"cannot be read: more than {self._most:,} bytes of it are needed")
        return content

    def readinto(self, buffer: Any) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        try:
            position: int = self._raw.seek(offset, whence)
        except Exception as failure:
            raise read_error(failure) from failure
        return position

    def tell(self) -> int:
        position: int = self._raw.tell()
        return position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class Storages:
    """The storages that one process has open, by warehouses' options; the longest unused one goes first.

    None holds what a catalog handed out for one table.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[frozenset[tuple[str, str]], bool], Storage] = OrderedDict()

    def with_options(self, options: Mapping[str, str], *, local: bool) -> Storage:
        """The storage for these options, made when it is not there."""
        key = (frozenset(options.items()), local)
        storage = self._kept.get(key)
        if storage is None:
            storage = self._kept[key] = Storage(options, local=local)
            if len(self._kept) > _FILE_IOS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return storage
