"""What a catalog says when it refuses: in the words of the reference server, which the other dialects change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.rest_double.wire import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from worker.identifiers import TableIdentifier


class Refused(Exception):  # noqa: N818 - an answer, not a failure of the double
    """An error object on its way to the client."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        stack: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.stack = list(stack)
        self.headers = dict(headers or {})

    def answer(self) -> Answer:
        """The error as JSON."""
        error = {"message": str(self), "type": self.kind, "code": self.status, "stack": self.stack}
        return Answer(self.status, json.dumps({"error": error}).encode(), headers=self.headers)


class RefusedInText(Exception):  # noqa: N818 - an answer, not a failure of the double
    """A refusal without an error object: what a web framework says by itself."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text)
        self.status = status

    def answer(self) -> Answer:
        """The text as it is."""
        return Answer(self.status, str(self).encode(), "text/plain; charset=utf-8" if str(self) else "")


class Dialect:
    """The reference server's refusals. ``shown`` is how a name stands in a message."""

    def no_warehouse_named(self) -> Exception:
        """The config was asked for without a warehouse; the reference server does not mind."""
        return Refused(400, "BadRequestException", "Please specify a warehouse")

    def warehouse_missing(self, name: str, *, by_id: bool) -> Exception:
        """Nobody knows the warehouse."""
        return Refused(404, "NotFoundException", f"Unable to find warehouse {name}")

    def namespace_missing(self, namespace: tuple[str, ...]) -> Exception:
        """There is no such namespace."""
        return Refused(404, "NoSuchNamespaceException", f"Namespace does not exist: {'.'.join(namespace)}")

    def namespace_taken(self, namespace: tuple[str, ...]) -> Exception:
        """There is one already."""
        return Refused(409, "AlreadyExistsException", f"Namespace already exists: {'.'.join(namespace)}")

    def namespace_not_empty(self, namespace: tuple[str, ...], tables: int, deleted: int, children: int) -> Exception:
        """Something is in it."""
        contents = f"{tables} table(s)" if tables else f"{children} child namespace(s)"
        return Refused(
            409, "NamespaceNotEmptyException", f"Namespace {'.'.join(namespace)} is not empty. Contains {contents}."
        )

    def table_missing(self, identifier: TableIdentifier) -> Exception:
        """There is no such table."""
        return Refused(404, "NoSuchTableException", f"Table does not exist: {identifier}")

    def table_missing_in_no_namespace(self, identifier: TableIdentifier) -> Exception:
        """A drop or a rename names a table whose namespace is not there either."""
        return self.table_missing(identifier)

    def table_taken(self, identifier: TableIdentifier) -> Exception:
        """The name belongs to a table."""
        return Refused(409, "AlreadyExistsException", f"Table already exists: {identifier}")

    def rename_taken(self, identifier: TableIdentifier, *, here: bool) -> Exception:
        """The name that a rename wants belongs to a table; ``here``: in the namespace where the source is."""
        return self.table_taken(identifier)

    def rename_lost(self, identifier: TableIdentifier) -> Exception:
        """The table got another name while the rename was under way."""
        return self.table_missing(identifier)

    def rename_raced(self, identifier: TableIdentifier) -> Exception:
        """The name was taken while the rename was under way."""
        return self.rename_taken(identifier, here=False)

    def file_missing(self, location: str) -> Exception:
        """The metadata file is not in storage."""
        return Refused(404, "NotFoundException", f"Failed to open input stream for file: {location}")

    def file_unreadable(self, location: str) -> Exception:
        """The metadata file is no metadata."""
        return Refused(400, "IllegalArgumentException", f"Cannot parse metadata file: {location}")

    def commit_refused(self, requirement: str) -> Exception:
        """A requirement does not hold."""
        return Refused(409, "CommitFailedException", requirement)

    def commit_raced(self, table_uuid: str) -> Exception:
        """Another commit came first."""
        return Refused(409, "CommitFailedException", f"Cannot commit: metadata location of {table_uuid} has changed")

    def overwrite_refused(self) -> Exception:
        """Register with ``overwrite`` is not served."""
        return Refused(406, "UnsupportedOperationException", "Registering tables with overwrite is not supported")

    def location_outside(self, location: str, root: str) -> Exception:
        """A location does not lie where this catalog's files lie."""
        return Refused(403, "ForbiddenException", f"Invalid locations '{location}': not under {root}")

    def location_taken(self, location: str) -> Exception:
        """Another table lies there."""
        return Refused(409, "AlreadyExistsException", f"Location already taken: {location}")

    def protected(self, table_uuid: str) -> Exception:
        """The table may not be dropped."""
        return Refused(403, "ForbiddenException", f"Table {table_uuid} is protected")

    def purge_refused(self) -> Exception:
        """Files are not deleted here."""
        return Refused(403, "ForbiddenException", "Drop with purge is disabled for this catalog")

    def unauthenticated(self, authorization: str | None) -> Exception:
        """Nobody knows who is asking."""
        return Refused(401, "NotAuthorizedException", "Not authorized")

    def not_served(self) -> Exception:
        """No such route."""
        return Refused(404, "NotFoundException", "No route for request")

    def malformed(self, why: str) -> Exception:
        """The body is not what the route takes."""
        return Refused(400, "IllegalArgumentException", why)

    def written(self, document: dict[str, Any]) -> dict[str, Any]:
        """Metadata as this server writes it."""
        return document
