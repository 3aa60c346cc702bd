"""Files of tables on the local disk, and their bytes.

Responsible for: the path that a location means, and digests. Must not know: which file belongs to what.
"""

from __future__ import annotations

import hashlib
from pathlib import Path


def path_of(location: str) -> str:
    """The path of a location; servers write ``file:/`` for ``file:///``."""
    return "/" + location.removeprefix("file:").lstrip("/")


def digest(path: str) -> str:
    """The SHA-256 of a file's bytes."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def digests(folder: Path) -> dict[str, str]:
    """Every file below a folder, by its path."""
    return {str(path): digest(str(path)) for path in folder.rglob("*") if path.is_file()}
