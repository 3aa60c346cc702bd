"""How Lakekeeper refuses, in its own words: its types are not the specification's, its stack tells what they hide."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from tests.support.rest_double.refusals import Dialect, Refused, RefusedInText

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.identifiers import TableIdentifier

_GETTING: Final = "Error getting tabular from catalog"
_RENAMING: Final = "Error renaming tabular in catalog"
_SAME_NAME: Final = "Tabular with the same name already exists in the namespace"
_DUPLICATE: Final = (
    "Catalog backend error (Unexpected): error returned from database: duplicate key value violates unique constraint "
    '"unique_name_per_namespace_id" at line 664'
)
DEEPEST: Final = 5
_KEPT: Final = frozenset({"refs", "partition-spec"})
"""What its metadata names even where it is empty."""
RESERVED: Final = frozenset({"system", "examples", "information_schema"})


def said(status: int, kind: str, message: str, *stack: str) -> Refused:
    """A refusal with the stack that this server puts into every one."""
    return Refused(status, kind, message, [*stack, f"Error ID: {uuid.uuid4()}"])


class Lakekeeper(Dialect):
    """0.13.3."""

    overrides: Mapping[str, str] = {"idempotency-key-lifetime": "PT30M"}
    """What config overrides."""
    usage: Mapping[str, str] = {}
    """What config says besides."""

    def no_warehouse_named(self) -> Exception:
        message = "No warehouse specified. Please specify the 'warehouse' parameter in the GET /config request."
        return said(400, "GetConfigNoWarehouseProvided", message)

    def warehouse_missing(self, name: str, *, by_id: bool) -> Exception:
        named = f"with id '{name}'" if by_id else f"'{name}'"
        message = f"A warehouse {named} does not exist"
        return said(
            404, "NoSuchWarehouseException", message, *(["Warehouse not found or access denied"] if by_id else [])
        )

    def namespace_missing(self, namespace: tuple[str, ...]) -> Exception:
        message = f"Namespace with name '{'.'.join(namespace)}' does not exist in warehouse"
        return said(404, "NoSuchNamespaceException", message, "Namespace not found or access denied")

    def namespace_taken(self, namespace: tuple[str, ...]) -> Exception:
        message = f"Namespace name '{'.'.join(namespace)}' already exist in warehouse"
        return said(409, "AlreadyExistsException", message, "Error creating Namespace in catalog")

    def namespace_not_empty(self, namespace: tuple[str, ...], tables: int, deleted: int, children: int) -> Exception:
        contents = (
            f"Contains {tables} tables/views/generic tables, {deleted} soft-deleted tables/views/generic tables"
            f" and {children} child namespaces."
        )
        return said(
            409,
            "NamespaceNotEmptyException",
            f"Namespace with name '{'.'.join(namespace)}' is not empty.",
            contents,
            "Use 'recursive' flag to delete all content.",
            "Error dropping Namespace in catalog",
        )

    def table_missing(self, identifier: TableIdentifier) -> Exception:
        return said(404, "NoSuchTableException", _GETTING)

    def table_missing_in_no_namespace(self, identifier: TableIdentifier) -> Exception:
        return self.namespace_missing(identifier.namespace)

    def table_taken(self, identifier: TableIdentifier) -> Exception:
        return said(409, "AlreadyExistsException", _SAME_NAME, "Error creating tabular in catalog")

    def rename_lost(self, identifier: TableIdentifier) -> Exception:
        either = "Either the source tabular or the destination namespace could not be found."
        return said(404, "NoSuchTableException", _GETTING, either, _RENAMING)

    def rename_taken(self, identifier: TableIdentifier, *, here: bool) -> Exception:
        if here:
            return said(404, "NoSuchTableException", _GETTING, _RENAMING)
        return self.rename_lost(identifier)

    def rename_raced(self, identifier: TableIdentifier) -> Exception:
        return said(503, "CatalogBackendError", _DUPLICATE, _RENAMING)

    def file_missing(self, location: str) -> Exception:
        message = f"IO error at `{location}`: Unknown S3 error during head operation: NotFound"
        return said(400, "NotFound", message, "Lakekeeper IO operation failed.")

    def file_unreadable(self, location: str) -> Exception:
        message = "Failed to deserialize table metadata: expected ident at line 1 column 2"
        return said(400, "Deserialization", message)

    def commit_refused(self, requirement: str) -> Exception:
        return said(409, "CatalogCommitConflicts", f"CatalogCommitConflicts => {requirement}")

    def commit_raced(self, table_uuid: str) -> Exception:
        return said(409, "ConcurrentUpdateError", f"Tabular Table ID '{table_uuid}' was concurrently updated")

    def location_outside(self, location: str, root: str) -> Exception:
        if "://" not in location:
            why = "Not a valid URL - `relative URL without a base`"
            return said(
                400, "InvalidTableLocation", f"Invalid location: Failed to parse '{location}' as Location: {why}"
            )
        if location.startswith("file:///") and not root.startswith("file:"):
            why = "host is empty"
            return said(
                400, "InvalidTableLocation", f"Invalid location: Failed to parse '{location}' as Location: {why}"
            )
        message = f"Provided location {location} is not a valid sublocation of the storage profile {root}."
        return said(400, "InvalidLocation", message)

    def location_taken(self, location: str) -> Exception:
        message = f"Location '{location}' is already taken by another table or view."
        return said(409, "LocationAlreadyTaken", message, "Error creating tabular in catalog")

    def protected(self, table_uuid: str) -> Exception:
        message = f"Cannot delete protected tabular Table ID '{table_uuid}' without force flag"
        return said(409, "ProtectedTabularDeletionWithoutForce", message, "Error dropping tabular in catalog")

    def unauthenticated(self, authorization: str | None) -> Exception:
        if authorization is None:
            return said(401, "MissingAuthorizationHeader", "Missing Authorization Header")
        if not authorization.lower().startswith("bearer ") or not authorization[7:].strip():
            return RefusedInText(400, "invalid HTTP header (authorization)")
        return said(401, "AuthenticationFailed", "Authentication failed")

    def not_served(self) -> Exception:
        return RefusedInText(404)

    def malformed(self, why: str) -> Exception:
        return RefusedInText(422, f"Failed to deserialize the JSON body into the target type: {why}")

    def check_id(self, prefix: str) -> None:
        """Refuse a prefix that is no id."""
        try:
            uuid.UUID(prefix)
        except ValueError as error:
            raise said(400, "WarehouseIdIsNotUUID", "Provided WarehouseId is not a valid UUID. Got: {s}") from error

    def maintenance(self) -> Exception:
        """Nothing is changed for now; the connection ends with this answer."""
        return Refused(
            503,
            "MaintenanceModeError",
            "Lakekeeper is in read-only maintenance mode. Mutating requests are temporarily rejected; "
            "retry after the maintenance window completes.",
            [f"Error ID: {uuid.uuid4()}"],
            {"Retry-After": "60"},
        )

    def written(self, document: dict[str, Any]) -> dict[str, Any]:
        """Without what is empty."""
        kept = {name: value for name, value in document.items() if name in _KEPT or value not in ([], {}, None)}
        kept["schemas"] = [
            {name: value for name, value in schema.items() if value != []} for schema in document["schemas"]
        ]
        return kept


class LakekeeperMain(Lakekeeper):
    """What was mended after 0.13.3."""

    overrides: Mapping[str, str] = {}
    usage: Mapping[str, str] = {"idempotency-key-lifetime": "PT30M"}

    def rename_taken(self, identifier: TableIdentifier, *, here: bool) -> Exception:
        return said(409, "AlreadyExistsException", _SAME_NAME, _RENAMING)

    def rename_raced(self, identifier: TableIdentifier) -> Exception:
        return self.rename_taken(identifier, here=False)


def namespace_refused(namespace: tuple[str, ...]) -> Exception | None:
    """Why a namespace of this name is not made; None where it is."""
    if not namespace:
        return RefusedInText(500, "Service panicked")
    shown = f'Namespace: NamespaceIdent(["{".".join(namespace)}"])'
    if len(namespace) > DEEPEST:
        return said(400, "NamespaceDepthExceeded", f"Namespace exceeds maximum depth of {DEEPEST}")
    if any("." in level for level in namespace):
        return said(400, "NamespacePartContainsDot", "Namespace parts cannot contain '.'", shown)
    if not all(namespace):
        return said(400, "NamespacePartEmpty", "Namespace parts cannot be empty", shown)
    if namespace[0].lower() in RESERVED:
        return said(400, "ReservedNamespace", "Namespace is reserved for internal use.")
    if any("+" in level for level in namespace):
        return said(400, "InvalidNamespace", "Namespace cannot contain '+' character.")
    return None


def name_refused(name: str) -> Exception | None:
    """Why a table of this name is not made; None where it is. A rename does not ask."""
    if not name:
        return said(400, "IdentifierNameEmpty", "name of the identifier cannot be empty")
    if "+" in name:
        return said(400, "InvalidTableName", "Table name cannot contain '+' character.")
    return None
