"""A REST catalog's answer that is not a plain success, whatever its body is.

Responsible for: taking the error object out of JSON, HTML, plain text or nothing, and what of it may be shown.
Must not know: what the answer means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import msgspec

from worker.lakehouse.locations import normalise


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is not a plain success."""

    status: int
    type: str = ""
    """The error object's ``type``; empty where there is no error object or no type in it."""
    message: str = ""
    is_json: bool = False
    """Whether the body is the catalog's own; an answer in HTML or plain text may be a proxy's."""
    is_empty: bool = False


class _Error(msgspec.Struct, frozen=True):
    """An error object. ``stack``, which holds the server's whole trace, is never decoded."""

    message: str | None = None
    type: str | None = None
    code: int | None = None


class _Body(msgspec.Struct, frozen=True):
    error: _Error | None = None


class _ForeignOutput(msgspec.Struct, frozen=True):
    type: str = msgspec.field(name="__type", default="")


class _ForeignBody(msgspec.Struct, frozen=True):
    output: _ForeignOutput | None = msgspec.field(name="Output", default=None)


_LONGEST_MESSAGE: Final = 300
_LARGEST_ERROR: Final = 256 * 1024
"""Bytes. An error is small, its stack included; to search the megabytes of a long history costs more than to decode
them, and whoever asked for metadata finds none in an error anyway."""
_PORTS: Final = {"http": 80, "https": 443}
_LOCATION: Final = re.compile(r"[a-z][a-z0-9+.-]*:/[^\s'\"`,;<>)]+?\.metadata\.json(?:\.gz)?", re.IGNORECASE)


def read_answer(status: int, body: bytes) -> Answer:
    """The answer in a response's status and body, whatever the body is."""
    stripped = body.strip()
    try:
        decoded = msgspec.json.decode(stripped, type=_Body)
        error = decoded.error or _Error()
        kind = error.type or _foreign_type(stripped)
        return Answer(status, kind, error.message or "", is_json=True)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = "" if stripped.startswith(b"<") else stripped[:_LONGEST_MESSAGE].decode(errors="replace")
        return Answer(status, message=text, is_empty=not stripped)


def _foreign_type(body: bytes) -> str:
    try:
        output = msgspec.json.decode(body, type=_ForeignBody).output
    except msgspec.DecodeError:
        return ""
    return output.type.rpartition("#")[2] if output is not None else ""


def carries_error(body: bytes) -> bool:
    """Whether the body of a success is an error after all."""
    if len(body) > _LARGEST_ERROR or (b'"error"' not in body and b"__type" not in body):
        return False
    answer = read_answer(HTTPStatus.OK, body)
    return bool(answer.type or answer.message)


def location_in(message: str) -> str | None:
    """The metadata location that a message names, normalised; None where it names none."""
    found = _LOCATION.search(message)
    return normalise(found.group()) if found is not None else None


def origin(address: str) -> str:
    """Whom a redirect leads to. Without user, path and query, which may hold a secret."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "what is no address"
    if not host:
        return "another path"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{'' if port is None else f':{port}'}"


def same_origin(one: str, other: str) -> bool:
    """Whether two addresses lead to one server: scheme, host and port. False where one is no address."""
    try:
        first, second = (
            (parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme))
            for parts in (urlsplit(one), urlsplit(other))
        )
    except ValueError:
        return False
    return first == second and first[1] is not None
