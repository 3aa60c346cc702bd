"""Storage that is not this machine's disk: pyiceberg's FileIO over a dictionary, for ``memory:`` locations."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, ClassVar

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

if TYPE_CHECKING:
    from pyiceberg.typedef import Properties


class MemoryFileIO(FileIO):
    """Named by the property ``py-io-impl``. What is in it belongs to the class, so that tests can fill and read it."""

    files: ClassVar[dict[str, bytes]] = {}
    made_with: ClassVar[list[Properties]] = []
    forbidden: ClassVar[set[str]] = set()

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self.made_with.append(properties)

    def new_input(self, location: str) -> InputFile:
        return _MemoryFile(location)

    def new_output(self, location: str) -> OutputFile:
        raise AssertionError("nothing is ever written")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise AssertionError("nothing is ever deleted")


class _MemoryFile(InputFile):
    def __len__(self) -> int:
        return len(MemoryFileIO.files[self.location])

    def exists(self) -> bool:
        if self.location in MemoryFileIO.forbidden:
            raise PermissionError(self.location)
        return self.location in MemoryFileIO.files

    def open(self, seekable: bool = True) -> InputStream:
        if not self.exists():
            raise FileNotFoundError(self.location)
        return io.BytesIO(MemoryFileIO.files[self.location])
