"""Storage of the double: files on this machine's disk, under ``file:`` or under a scheme that stands for it."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.lakehouse.locations import local_path, normalise

if TYPE_CHECKING:
    from collections.abc import Mapping


class Files:
    """``mounts`` are prefixes of locations, such as ``s3://lake``, with the folders that stand for them."""

    def __init__(self, mounts: Mapping[str, Path] | None = None) -> None:
        self._mounts = dict(mounts or {})

    def path(self, location: str) -> Path | None:
        """The file or folder of a location, None where this storage does not reach."""
        normal = normalise(location)
        for prefix, folder in self._mounts.items():
            if normal.startswith(prefix + "/"):
                return folder / normal.removeprefix(prefix + "/")
        local = local_path(normal)
        return None if local is None else Path(local)

    def read(self, location: str) -> bytes:
        """The content of a metadata file, unpacked. Raises FileNotFoundError."""
        path = self.path(location)
        if path is None:
            raise FileNotFoundError(location)
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content

    def exists(self, location: str) -> bool:
        """Whether there is such a file."""
        path = self.path(location)
        return path is not None and path.is_file()

    def write(self, location: str, content: bytes) -> None:
        """Write a metadata file, packed where its name says so."""
        path = self.path(location)
        if path is None:
            raise FileNotFoundError(location)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content, 1) if location.endswith(".gz.metadata.json") else content)

    def write_json(self, location: str, document: Mapping[str, Any]) -> None:
        """Write a metadata file from its fields."""
        self.write(location, json.dumps(document).encode())

    def remove(self, location: str) -> None:
        """Remove one file; one that is not there is fine."""
        path = self.path(location)
        if path is not None:
            path.unlink(missing_ok=True)

    def remove_all(self, location: str) -> None:
        """Remove everything under a location, whoever else it belongs to."""
        path = self.path(location)
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)

    def any_under(self, location: str) -> bool:
        """Whether there is a file under a location."""
        path = self.path(location)
        return path is not None and any(entry.is_file() for entry in path.rglob("*"))
