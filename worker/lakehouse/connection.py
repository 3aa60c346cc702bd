"""How a catalog is reached: the one value that the adapters are built from.

Responsible for: the typed values, with every secret typed as a secret.
Must not know: where they come from (``wiring`` maps settings to it), HTTP, pyiceberg.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import SecretStr


class CatalogType(StrEnum):
    """The kinds of catalog that there is an adapter for."""

    REST = "rest"
    SQL = "sql"


class CatalogAuth(StrEnum):
    """How this client says who it is. ``none`` sends no header at all."""

    NONE = "none"
    BASIC = "basic"
    TOKEN = "token"  # noqa: S105 - the name of a way to authenticate, not a token
    OAUTH2 = "oauth2"


@dataclass(frozen=True, slots=True)
class CatalogConnection:
    """Everything that is needed to open any warehouse of one catalog.

    ``uri`` is the REST catalog's address (its ``/v1`` is added where it is missing), or a SQLAlchemy URL, which may
    hold a password. ``warehouse_location`` is the root under which an SQL catalog's tables lie. ``properties`` are
    further pyiceberg properties, such as ``s3.*`` for storage and ``header.*`` for the REST catalog.
    """

    type: CatalogType
    uri: SecretStr
    timeout_seconds: float = 10.0
    """For connecting, and for each wait for an answer."""
    warehouse_location: str | None = None
    auth: CatalogAuth = CatalogAuth.NONE
    user: str | None = None
    password: SecretStr | None = None
    token: SecretStr | None = None
    client_id: str | None = None
    client_secret: SecretStr | None = None
    oauth2_token_url: str | None = None
    oauth2_scope: str | None = None
    properties: Mapping[str, SecretStr] = field(default_factory=dict)
    problem: str | None = None
    """Why this warehouse cannot be reached with what the settings say now; every call fails with it."""

    def impossible(self, problem: str) -> CatalogConnection:
        """The same, for a warehouse whose own settings cannot be used."""
        return replace(self, problem=problem)
