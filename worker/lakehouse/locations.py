"""How a place in storage is written, so that two spellings of one place compare equal.

Responsible for: the one spelling of a location, and the local path of a ``file:`` location.
Must not know: storage itself.
"""

from __future__ import annotations

from typing import Final

_FILE: Final = "file:"


def normalise(location: str) -> str:
    """The one spelling of a location: ``file:/x``, ``file://localhost/x`` and a bare ``/x`` are ``file:///x``.

    Nothing is decoded: ``%2F`` in a file's name is part of its name. Other schemes stay as they are, because a
    catalog compares what it is handed with what it holds, letter by letter.
    """
    if location.startswith(_FILE):
        rest = location[len(_FILE) :]
        if rest.startswith("//localhost/"):
            rest = rest[len("//localhost") :]
        return _FILE + "///" + rest.lstrip("/")
    if location.startswith("/"):
        return _FILE + "///" + location.lstrip("/")
    return location


def folder(location: str) -> str:
    """The one spelling of a folder's location, in which a slash at the end says nothing."""
    return normalise(location).rstrip("/")


def local_path(location: str) -> str | None:
    """The path of a location on this machine's own disk, None for any other storage."""
    normal = normalise(location)
    return normal[len("file://") :] if normal.startswith("file:///") else None
