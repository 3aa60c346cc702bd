"""Where a table's files lie, and how they are opened for reading.

Responsible for: opening files with the options that the catalog handed out for them, telling "certainly not there"
from "cannot say", and counting what is opened and read. Nothing here writes.
Must not know: what is in the files.

Files on this machine's own disk are opened directly; everything else goes through pyiceberg's FileIO, which is only
imported when it is needed.
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from worker.lakehouse.locations import local_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.io import FileIO

_FILE_IOS: Final = 16
"""Clients for storage that one process keeps, one for each set of options that warehouses have."""


class Storage:
    """The files of tables that share one set of storage options. ``opens`` and ``bytes_read`` count."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._io: FileIO | None = None
        self.opens = 0
        self.bytes_read = 0

    def read(self, location: str) -> bytes:
        """A whole file. Raises FileNotFoundError, or another OSError where storage does not give it."""
        with self.open(location) as stream:
            return stream.read()

    def open(self, location: str) -> BinaryIO:
        """A file, to be read in pieces. Raises as ``read`` does."""
        self.opens += 1
        path = local_path(location)
        raw = open(path, "rb", buffering=0) if path is not None else self._remote(location)  # noqa: PTH123, SIM115
        return cast("BinaryIO", _Counted(raw, self))

    def certainly_missing(self, location: str, *, beside: str) -> bool:
        """Whether storage has no file at ``location``, shown by its having one at ``beside``.

        A mount that is gone or a bucket that is out of reach looks like a missing file; the other file tells.
        """
        return self._exists(location) is False and self._exists(beside) is True

    def _exists(self, location: str) -> bool | None:
        path = local_path(location)
        try:
            if path is not None:
                os.stat(path)  # noqa: PTH116 - a Path hides which of its errors mean "not there"
                return True
            return self._file_io().new_input(location).exists()
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            return None

    def _remote(self, location: str) -> Any:
        return self._file_io().new_input(location).open(seekable=True)

    def _file_io(self) -> FileIO:
        if self._io is None:
            from pyiceberg.io import load_file_io  # noqa: PLC0415 - 60 MB that a local warehouse never needs

            self._io = load_file_io(self._options)
        return self._io


class _Counted(io.RawIOBase):
    """A file that counts what is read of it."""

    def __init__(self, raw: Any, storage: Storage) -> None:
        self._raw = raw
        self._storage = storage

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._raw.read() if size is None or size < 0 else self._raw.read(size)
        self._storage.bytes_read += len(content)
        return content

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position: int = self._raw.seek(offset, whence)
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
        self._kept: OrderedDict[frozenset[tuple[str, str]], Storage] = OrderedDict()

    def with_options(self, options: Mapping[str, str]) -> Storage:
        """The storage for these options, made when it is not there."""
        key = frozenset(options.items())
        storage = self._kept.get(key)
        if storage is None:
            storage = self._kept[key] = Storage(options)
            if len(self._kept) > _FILE_IOS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return storage
