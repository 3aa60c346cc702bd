"""How a place in storage is written, so that two spellings of one place compare equal.

Responsible for: the one spelling of a location, whether it is on this machine, and the path of one that is.
Must not know: storage itself.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

_FILE: Final = "file:"


def normalise(location: str) -> str:
    """The one spelling of a location: ``file:/x``, ``file://localhost/x`` and a bare ``/x`` are ``file:///x``.

    Nothing is decoded: ``%2F`` in a file's name is part of its name. Other schemes stay as they are, because a
    catalog compares what it is handed with what it holds, letter by letter.
    """
    if location[: len(_FILE)].lower() == _FILE:
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


def is_local(location: str) -> bool:
    """Whether a storage client would look for it on this machine: ``file:`` in any spelling, or no scheme at all.

    Raises ValueError where it is no location.
    """
    return urlsplit(location).scheme in {"", "file"}


def may_be_local(*told: str | None) -> bool:
    """Whether everything that is known of a warehouse's place says that it is this machine's own disk."""
    known = [location for location in told if location is not None]
    return bool(known) and all(local_path(location) is not None for location in known)


def local_path(location: str) -> str | None:
    """The path of a location on this machine's own disk, None for any other storage."""
    normal = normalise(location)
    return normal[len("file://") :] if normal.startswith("file:///") else None
