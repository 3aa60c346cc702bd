"""How Gravitino's Iceberg REST server refuses, where its words are not the reference server's."""

from __future__ import annotations

from typing import Final

from tests.support.rest_double.refusals import Dialect, Refused

_FILES: Final = ("data_files", "delete_files", "entries", "files", "manifests")
METADATA_TABLES: Final = frozenset(
    {*_FILES, *(f"all_{name}" for name in _FILES), "history", "metadata_log_entries", "partitions"}
    | {"position_deletes", "refs", "snapshots"}
)
"""Names that Iceberg gives to the tables of a table's metadata."""
LONGEST: Final = 128
"""Characters of a name that an entity can have."""

_NO_DEFAULT: Final = (
    "For dynamic config provider, Please use `warehouse` in iceberg client side to specify the catalog name or setting "
    "`gravitino.iceberg-rest.default-catalog-name` in REST server side to specify the default catalog name."
)


class Gravitino(Dialect):
    """1.3. The catalogs of its metalake are the warehouses."""

    not_empty = 409

    def no_warehouse_named(self) -> Exception:
        return Refused(400, "IllegalArgumentException", _NO_DEFAULT)

    def warehouse_missing(self, name: str, *, by_id: bool) -> Exception:
        return Refused(404, "NoSuchCatalogException", f"Couldn't find Iceberg configuration for catalog {name}")

    def namespace_not_empty(self, namespace: tuple[str, ...], tables: int, deleted: int, children: int) -> Exception:
        contents = f"{tables} table(s)" if tables else f"{children} child namespace(s)"
        message = f"Namespace {'.'.join(namespace)} is not empty. Contains {contents}."
        return Refused(self.not_empty, "NamespaceNotEmptyException", message)

    def file_missing(self, location: str) -> Exception:
        return Refused(
            500, "NotFoundException", f"Failed to open input stream for file: {location.replace('file:///', 'file:/')}"
        )

    def unauthenticated(self, authorization: str | None) -> Exception:
        return Refused(401, "NotAuthorizedException", "The provided credentials did not support")

    def unknown_user(self, user: str) -> Exception:
        """The metalake does not know who is asking."""
        message = (
            f"Current user {user} doesn't exist in the metalake carbon, you should add the user to the metalake first"
        )
        return Refused(403, "ForbiddenException", message)

    def forbidden(self, user: str, operation: str, on: str) -> Exception:
        """The user is known and has no right."""
        message = f"User '{user}' is not authorized to perform operation '{operation}' on metadata '{on}'"
        return Refused(403, "ForbiddenException", message)

    def may_not_load(self, user: str, table: str) -> Exception:
        """The user is known and may not read the table, whether it is there or not."""
        return Refused(403, "ForbiddenException", f"User '{user}' is not authorized to load table 'carbon.{table}'")

    def entity_not_renamed(self) -> Exception:
        """The table was renamed, and its entity's name is too long."""
        return Refused(500, "RuntimeException", "io exception when renaming table entity")

    def authorization_failed(self, user: str, operation: str) -> Exception:
        """What it says when a catalog cannot be started, or is not there at all."""
        message = f"Authorization failed due to system internal error, User: '{user}', Operation: '{operation}'"
        return Refused(500, "RuntimeException", message)

    def not_in_use(self, warehouse: str) -> Exception:
        """The catalog is disabled, which is noticed once the work is done."""
        return Refused(500, "CatalogNotInUseException", f"The catalog {warehouse} is not in use")

    def not_entered(self, name: str) -> Exception:
        """The table was made and then not found among its own entities."""
        return Refused(500, "NoSuchTableException", f"Iceberg table does not exist: {name}")

    def has_entities(self, warehouse: str, level: str) -> Exception:
        """The namespace was dropped and its entity was mistaken for the parent's."""
        message = f"Entity carbon.{warehouse}.{level} has sub-entities, you should remove sub-entities first"
        return Refused(500, "NonEmptyEntityException", message)

    def starts_not(self) -> Exception:
        """A property of the catalog keeps it from starting."""
        return Refused(400, "IllegalArgumentException", "No credential provider found for: no-such-provider")

    def delegation_refused(self, asked: str) -> Exception:
        """The header asks for a kind of access that is not handed out."""
        if asked == "remote-signing":
            message = "Gravitino IcebergRESTServer doesn't support remote signing"
            return Refused(406, "UnsupportedOperationException", message)
        message = (
            f"X-Iceberg-Access-Delegation: {asked} is illegal, Iceberg REST spec supports: "
            "[vended-credentials,remote-signing], Gravitino Iceberg REST server supports: vended-credentials"
        )
        return Refused(400, "IllegalArgumentException", message)


class Gravitino12(Gravitino):
    """1.2: what is not empty is a bad request."""

    not_empty = 400
