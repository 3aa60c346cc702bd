"""How an answer of the double is held against a recorded one."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.support.rest_double.wire import Answer

Line = dict[str, Any]
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def content_of(answer: Answer) -> Any:
    """What an answer holds: JSON decoded, text as it is."""
    if not answer.body:
        return ""
    return json.loads(answer.body) if answer.content_type.startswith("application/json") else answer.body.decode()


def difference_in(line: Line, answer: Answer, told: Any) -> str:
    """What is different between the recorded answer and the double's; empty where they are alike."""
    if answer.status != line["status"]:
        return f"status: {line['status']} there, {answer.status} here"
    there, here = line["answer"], told
    if line["method"] == "HEAD" or not there:
        return "" if line["method"] == "HEAD" or not here else f"answer: nothing there, {here} here"
    if _media(line.get("content_type")) != _media(answer.content_type):
        return f"content type: {line['content_type']} there, {answer.content_type} here"
    if isinstance(there, dict) and "_cut" in there:
        there, here = _before_the_cut(there["_cut"], here)
    if isinstance(there, dict) and "keys" in there:
        here = _digest(here)
    one, other = shape_of(there), shape_of(here)
    return _different_value(there, here) or ("" if one == other else f"shape: {_first_difference(one, other)}")


def _different_value(there: Any, here: Any) -> str:
    """The first value that must be the same and is not; identifiers that a server makes up are left blank."""
    for path in (("error", "type"), ("namespaces",), ("identifiers",), ("namespace",)):
        one, other = _ordered(_at(there, path)), _ordered(_at(here, path))
        if one != other:
            return f"{'.'.join(path)}: {one} there, {other} here"
    for path in (("metadata-location",), ("location",), ("metadata", "location")):
        one, other = _blank(_at(there, path)), _blank(_at(here, path))
        if one != other:
            return f"{'.'.join(path)}: {one} there, {other} here"
    # The stack is where Lakekeeper tells a taken name from a missing table. Other recordings hold none.
    one, other = _at(there, ("error", "stack")), _at(here, ("error", "stack"))
    if one is not None and _told(one) != _told(other):
        return f"error.stack: {_told(one)} there, {_told(other)} here"
    return ""


def _media(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0]


def _at(content: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        content = content.get(name) if isinstance(content, dict) else None
    return content


def _blank(location: str | None) -> str:
    return _UUID.sub("…", location or "")


def _told(stack: list[str]) -> list[str]:
    return [entry for entry in stack if not entry.startswith("Error ID")]


def _ordered(content: Any) -> Any:
    return sorted(json.dumps(entry, sort_keys=True) for entry in content) if isinstance(content, list) else content


def _before_the_cut(text: str, told: Line) -> tuple[Line, Line]:
    """A long answer's beginning, and the same of the double's."""
    beginning = text.partition(', "endpoints"')[0] + "}"
    return json.loads(beginning), {name: value for name, value in told.items() if name != "endpoints"}


def _digest(told: Line) -> Line:
    """What some recordings keep of a table."""
    metadata = told.get("metadata", {})
    return {
        "metadata-location": told.get("metadata-location"),
        "location": metadata.get("location"),
        "tprops": metadata.get("properties", {}),
        "config": told.get("config"),
        "keys": sorted(told),
    }


def shape_of(content: Any) -> Any:
    """Names and types of an answer; of a list, every shape that turns up in it."""
    if isinstance(content, dict):
        return {name: shape_of(value) for name, value in sorted(content.items()) if name != "stack"}
    if isinstance(content, list):
        return sorted({json.dumps(shape_of(entry), sort_keys=True) for entry in content})
    return "number" if isinstance(content, int | float) and not isinstance(content, bool) else type(content).__name__


def _first_difference(one: Any, other: Any, path: str = "answer") -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            missing, more = sorted(one.keys() - other.keys()), sorted(other.keys() - one.keys())
            return f"{path}: {missing} missing, {more} too much"
        name = next(name for name in one if one[name] != other[name])
        return _first_difference(one[name], other[name], f"{path}.{name}")
    return f"{path}: {one} there, {other} here"
