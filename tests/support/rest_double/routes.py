"""What a request to an Iceberg REST catalog asks for, read from its method and its target alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(StrEnum):
    """The requests of the protocol."""

    CONFIG = "config"
    TOKEN = "token"
    LIST_NAMESPACES = "list_namespaces"
    CREATE_NAMESPACE = "create_namespace"
    GET_NAMESPACE = "get_namespace"
    HEAD_NAMESPACE = "head_namespace"
    DROP_NAMESPACE = "drop_namespace"
    NAMESPACE_PROPERTIES = "namespace_properties"
    LIST = "list"
    CREATE = "create"
    REGISTER = "register"
    LOAD = "load"
    HEAD = "head"
    COMMIT = "commit"
    DROP = "drop"
    RENAME = "rename"
    METRICS = "metrics"
    OTHER = "other"


_KINDS: Final = {
    ("GET", "config"): Kind.CONFIG,
    ("POST", "oauth/tokens"): Kind.TOKEN,
    ("POST", "tables/rename"): Kind.RENAME,
    ("GET", "namespaces"): Kind.LIST_NAMESPACES,
    ("POST", "namespaces"): Kind.CREATE_NAMESPACE,
    ("GET", "namespaces/*"): Kind.GET_NAMESPACE,
    ("HEAD", "namespaces/*"): Kind.HEAD_NAMESPACE,
    ("DELETE", "namespaces/*"): Kind.DROP_NAMESPACE,
    ("POST", "namespaces/*/properties"): Kind.NAMESPACE_PROPERTIES,
    ("GET", "namespaces/*/tables"): Kind.LIST,
    ("POST", "namespaces/*/tables"): Kind.CREATE,
    ("POST", "namespaces/*/register"): Kind.REGISTER,
    ("GET", "namespaces/*/tables/*"): Kind.LOAD,
    ("HEAD", "namespaces/*/tables/*"): Kind.HEAD,
    ("POST", "namespaces/*/tables/*"): Kind.COMMIT,
    ("DELETE", "namespaces/*/tables/*"): Kind.DROP,
    ("POST", "namespaces/*/tables/*/metrics"): Kind.METRICS,
}
_UNPREFIXED: Final = frozenset({"config", "oauth", "namespaces", "tables", "transactions"})


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes. ``namespace`` and ``table`` are as they stand in the target, still encoded."""

    kind: Kind
    prefix: str = ""
    namespace: str = ""
    table: str = ""
    query: Mapping[str, str] | None = None

    def asked(self, name: str) -> str | None:
        """The value of a parameter of the query, None where it is left out."""
        return (self.query or {}).get(name)


def route_of(method: str, target: str) -> Route:
    """The route of a request; ``OTHER`` for what the protocol does not know."""
    path, _, query = target.partition("?")
    asked = dict(parse_qsl(query, keep_blank_values=True))
    base, v1, rest = path.partition("/v1/")
    if not v1 and method == "POST" and base.endswith(("/token", "/tokens")):
        return Route(Kind.TOKEN, query=asked)
    words = rest.split("/")
    prefix = "" if words[0] in _UNPREFIXED else words.pop(0)
    shape = "/".join("*" if place in {1, 3} and words[0] == "namespaces" else word for place, word in enumerate(words))
    kind = _KINDS.get((method, shape), Kind.OTHER)
    if not words or words[0] != "namespaces":
        return Route(kind, unquote(prefix), query=asked)
    namespace, table = (words[place] if len(words) > place else "" for place in (1, 3))
    return Route(kind, unquote(prefix), namespace, table, asked)


def levels_of(namespace: str, separator: str) -> tuple[str, ...]:
    """The levels of a namespace in a path; ``separator`` is the encoded one, such as ``%1F``."""
    return tuple(unquote(level) for level in re.split(re.escape(separator), namespace, flags=re.IGNORECASE))
