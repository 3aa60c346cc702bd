"""What a REST catalog's refusals and silences mean: one table for each.

Responsible for: (status, the error's type, the message's shape, the call) → (code, kind), each row with where it was
seen; the same for requests that got no answer; and the one line of text that a person reads.
Must not know: how a request is sent.

Rows are tried from the top; the first that fits decides. A row without types fits every answer of its status, also one
without a body, in HTML, or from a proxy. Only a *typed* 404 says that a table is missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from worker.lakehouse.cleaning import one_line
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind
from worker.lakehouse.rest_answers import Answer, location_in


class Call(StrEnum):
    """The requests that are sent; the value reads in "the catalog did not …"."""

    CONFIG = "say how it is used"
    TOKEN = "hand out a token"  # noqa: S105 - a request's name, not a token
    LOAD = "load the table"
    REGISTER = "register the table"
    RENAME = "rename the table"
    DROP = "drop the table"
    CREATE_NAMESPACE = "create the namespace"
    EXISTS = "say whether it has the table"
    NAMESPACE = "show the namespace"
    LIST = "list the tables"
    VIEW = "show the view"
    CREATE_TABLE = "create the table"
    DROP_NAMESPACE = "drop the namespace"


CHANGES: Final = frozenset(
    {Call.REGISTER, Call.RENAME, Call.DROP, Call.CREATE_NAMESPACE, Call.CREATE_TABLE, Call.DROP_NAMESPACE}
)
"""The calls that change something: after silence it is unknown whether they did."""

_OF_A_TABLE: Final = frozenset({Call.LOAD, Call.DROP})
_READS_A_FILE: Final = frozenset({Call.LOAD, Call.REGISTER, Call.RENAME})
_PUTS_A_NAME: Final = frozenset({Call.RENAME, Call.REGISTER, Call.CREATE_NAMESPACE, Call.CREATE_TABLE})


class Doubt(Enum):
    """The kind of an error that makes no statement: unknown for a change, and for a read simply to be tried again."""

    DOUBT = "doubt"


DOUBT: Final = Doubt.DOUBT


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. Empty ``statuses``, ``types`` and ``calls`` fit everything."""

    code: ErrorCode
    kind: ErrorKind | Doubt
    statuses: frozenset[int] = frozenset()
    types: frozenset[str] = frozenset()
    calls: frozenset[Call] = frozenset()
    message: str = ""
    """A regular expression that the message must contain."""
    untyped: bool = False
    """Only where the answer names no type."""
    not_a_proxy: bool = False
    """Only where the body is JSON or empty."""

    def fits(self, call: Call, answer: Answer) -> bool:
        """Whether this row decides about the answer."""
        return (
            (not self.statuses or answer.status in self.statuses)
            and (not self.types or answer.type in self.types)
            and (not self.calls or call in self.calls)
            and (not self.untyped or not answer.type)
            and (not self.not_a_proxy or answer.is_json or answer.is_empty)
            and re.search(self.message, answer.message, re.IGNORECASE) is not None
        )


def _of(*values: int) -> frozenset[int]:
    return frozenset(values)


def _named(*types: str) -> frozenset[str]:
    return frozenset(types)


_NO_WAREHOUSE: Final = _named(
    "NoSuchWarehouseException", "ProjectNotFound", "NoSuchCatalogException", "NoSuchMetalakeException"
)
_FILE_SHAPE: Final = r"file|stream|location|metadata|[a-z0-9]+:/"
_TRANSIENT, _PERMANENT = ErrorKind.TRANSIENT, ErrorKind.PERMANENT

ROWS: Final = (
    # Reference server 1.11.0: the row is there, its metadata file is not. The message must speak of a file: the name is
    # also what a Java web framework calls an address that it does not serve.
    Row(ErrorCode.FILE_MISSING, _PERMANENT, _of(404), _named("NotFoundException"), _READS_A_FILE, _FILE_SHAPE),
    # Reference server 1.10.1 and Gravitino: the same as a 500.
    Row(ErrorCode.FILE_MISSING, _PERMANENT, _of(500), _named("NotFoundException"), _READS_A_FILE, _FILE_SHAPE),
    # Lakekeeper: the file is read before anything else is looked at.
    Row(ErrorCode.FILE_MISSING, _PERMANENT, _of(400), _named("NotFound"), frozenset({Call.REGISTER})),
    # Nessie: the store's own words.
    Row(
        ErrorCode.FILE_MISSING,
        _PERMANENT,
        _of(400),
        _named("IllegalArgumentException"),
        frozenset({Call.REGISTER}),
        r"key does not exist|NoSuchKey",
    ),
    # Every server; a load in a missing namespace is one or the other (reference server; Lakekeeper's drop).
    Row(ErrorCode.TABLE_MISSING, _PERMANENT, _of(404), _named("NoSuchTableException")),
    # Specification; some servers give a view the type of a table.
    Row(ErrorCode.TABLE_MISSING, _PERMANENT, _of(404), _named("NoSuchViewException")),
    Row(ErrorCode.TABLE_MISSING, _PERMANENT, _of(404), _named("NoSuchNamespaceException"), _OF_A_TABLE),
    Row(ErrorCode.NAMESPACE_MISSING, _PERMANENT, _of(404), _named("NoSuchNamespaceException")),
    # Lakekeeper: a warehouse that is inactive, unknown or hidden from this client; Gravitino: the same of a catalog.
    Row(
        ErrorCode.UNAVAILABLE,
        _TRANSIENT,
        _of(404),
        _NO_WAREHOUSE,
    ),
    # Lakekeeper answers an unknown route with an empty 404, UnityCatalog and BigLake do not serve every route. A 404 of
    # a proxy is no such statement, except for rename, where taking it for one only makes the withdrawal plainer.
    Row(ErrorCode.NOT_OFFERED, _PERMANENT, _of(404), calls=frozenset({Call.RENAME}), untyped=True),
    Row(ErrorCode.NOT_OFFERED, _PERMANENT, _of(404), calls=_PUTS_A_NAME, untyped=True, not_a_proxy=True),
    # A proxy whose catalog is scaled to zero, or an address that leads to something else.
    Row(ErrorCode.UNAVAILABLE, _TRANSIENT, _of(404), untyped=True),
    Row(ErrorCode.UNCLEAR, DOUBT, _of(404)),
    # Specification; Lakekeeper answers a malformed Authorization header with a 400 in plain text.
    Row(ErrorCode.UNAUTHORIZED, _TRANSIENT, _of(401, 419)),
    Row(ErrorCode.UNAUTHORIZED, _TRANSIENT, _of(400), message=r"\bauthorization\b", untyped=True),
    # OAuth2 (RFC 6749): what is wrong stands in ``error``, which the token request hands over as the type.
    Row(ErrorCode.UNAUTHORIZED, _TRANSIENT, _of(400, 403), calls=frozenset({Call.TOKEN})),
    Row(ErrorCode.FORBIDDEN, _PERMANENT, _of(403, 407)),
    # Lakekeeper: a protected table is not dropped without force.
    Row(ErrorCode.FORBIDDEN, _PERMANENT, _of(409), _named("ProtectedTabularDeletionWithoutForce")),
    # AWS Glue answers what it does not route with a 200 or a 400 of this type.
    Row(ErrorCode.NOT_OFFERED, _PERMANENT, types=_named("UnknownOperationException")),
    # Specification: 406 UnsupportedOperationException (Gravitino, reference server), 405 and 501 of gateways.
    Row(ErrorCode.NOT_OFFERED, _PERMANENT, _of(405, 406, 501)),
    # Nessie: among what a commit needs, the namespace and its parents; it says so without a type.
    Row(ErrorCode.NAMESPACE_MISSING, _PERMANENT, _of(409), calls=_PUTS_A_NAME, message=r"namespace '.*' must exist"),
    # Nessie: a lost rename race, the source is no longer there; it says so without a type.
    Row(ErrorCode.UNCLEAR, DOUBT, _of(409), message=r"does not exist"),
    # Every server; Nessie leaves the type empty ("Key '…' already exists").
    Row(ErrorCode.ALREADY_EXISTS, _PERMANENT, _of(409), _named("AlreadyExistsException")),
    Row(ErrorCode.ALREADY_EXISTS, _PERMANENT, _of(409), calls=_PUTS_A_NAME, untyped=True),
    # Lakekeeper: another table lies in the same folder.
    Row(ErrorCode.INVALID, _PERMANENT, _of(409), _named("LocationAlreadyTaken")),
    # RequestInProgress, ConcurrentUpdateError, CommitFailedException: somebody else is at it.
    Row(ErrorCode.UNCLEAR, DOUBT, _of(409)),
    Row(ErrorCode.THROTTLED, _TRANSIENT, _of(429)),
    # Lakekeeper in maintenance refuses before it starts.
    Row(ErrorCode.UNAVAILABLE, _TRANSIENT, _of(503), _named("MaintenanceModeError")),
    # Lakekeeper: a lost race or a deadlock in its database; the warehouse itself is there.
    Row(ErrorCode.UNCLEAR, DOUBT, _of(503), _named("CatalogBackendError")),
    # Specification: a 503 may have been partially processed. 502 and 504 without a type come from a proxy in front.
    Row(ErrorCode.UNAVAILABLE, DOUBT, _of(503)),
    Row(ErrorCode.UNAVAILABLE, DOUBT, _of(502, 504), untyped=True),
    # A proxy gave up waiting.
    Row(ErrorCode.UNCLEAR, DOUBT, _of(408)),
    # Everything else that a server refuses: 400 of many types, 413, 422 (Lakekeeper: the JSON's shape) …
    Row(ErrorCode.INVALID, _PERMANENT, frozenset(range(400, 500))),
    # Reference server: lost races; Gravitino: done, and then a 500.
    Row(ErrorCode.UNCLEAR, DOUBT, frozenset(range(500, 600))),
    # Redirects are not followed, and a success is not one when its body is not the catalog's.
    Row(ErrorCode.UNREADABLE, DOUBT),
)


def classify(call: Call, answer: Answer) -> tuple[ErrorCode, ErrorKind]:
    """What an answer means."""
    row = next(row for row in ROWS if row.fits(call, answer))
    return row.code, kind_of(call, row.kind)


def kind_of(call: Call, kind: ErrorKind | Doubt) -> ErrorKind:
    """The kind for this call: doubt about a change is unknown, doubt about a read is not."""
    if isinstance(kind, ErrorKind):
        return kind
    return ErrorKind.UNKNOWN if call in CHANGES else ErrorKind.TRANSIENT


def error_for(call: Call, answer: Answer, *, about: str, retry_after: float | None = None) -> CatalogError:
    """The error for an answer; ``about`` names the table or the namespace."""
    code, kind = classify(call, answer)
    return CatalogError(
        code, kind, _text(call, answer, about), retry_after=retry_after, location=location_in(answer.message)
    )


def _text(call: Call, answer: Answer, about: str) -> str:
    said = one_line(answer.message)
    told = " ".join(part for part in (str(answer.status), one_line(answer.type)) if part)
    absent = "the warehouse does not exist, is inactive or is hidden from us" if answer.type in _NO_WAREHOUSE else ""
    return ": ".join(part for part in (_did_not(call, about), absent, told, said) if part)


@dataclass(frozen=True, slots=True)
class Silence:
    """One way in which a request ends without an answer."""

    exceptions: tuple[type[BaseException], ...]
    code: ErrorCode
    kind: ErrorKind | Doubt
    text: str
    sign: str = ""
    """A regular expression that the exception's text must contain."""


SILENCES: Final = (
    # A handshake that fails comes before the request: nothing was sent.
    Silence((SSLError,), ErrorCode.UNAVAILABLE, _TRANSIENT, "its certificate is not trusted", r"CERTIFICATE_VERIFY"),
    Silence(
        (SSLError,), ErrorCode.UNAVAILABLE, _TRANSIENT, "it does not speak TLS there", r"WRONG_VERSION|RECORD_LAYER"
    ),
    Silence((SSLError,), ErrorCode.UNCLEAR, DOUBT, "the encrypted connection broke"),
    # No connection, no request. A name that is not known is a special case of the next two, and stands first.
    Silence((NameResolutionError,), ErrorCode.UNAVAILABLE, _TRANSIENT, "its host name is not known"),
    Silence((NewConnectionError,), ErrorCode.UNAVAILABLE, _TRANSIENT, "it refuses connections", r"refused"),
    Silence((NewConnectionError,), ErrorCode.UNAVAILABLE, _TRANSIENT, "it cannot be reached"),
    Silence((ConnectTimeoutError,), ErrorCode.UNAVAILABLE, _TRANSIENT, "connecting took too long"),
    Silence((ReadTimeoutError,), ErrorCode.UNCLEAR, DOUBT, "it did not answer in time"),
    Silence((LocationValueError,), ErrorCode.INVALID, _PERMANENT, "its address is not a URL"),
    # Reset, closed without an answer, cut in the middle of one, or an answer that is not HTTP.
    Silence((HTTPError, OSError), ErrorCode.UNCLEAR, DOUBT, "the connection broke"),
    # http.client, before it sends anything: a header among the properties with a line break, or outside latin-1.
    Silence(
        (ValueError,),
        ErrorCode.INVALID,
        _PERMANENT,
        "a header among its properties cannot be sent: it must be one line of plain text",
        r"invalid header|codec can't encode",
    ),
    # Whatever else: it must not leave as it is, because its text may quote what was sent.
    Silence((BaseException,), ErrorCode.UNCLEAR, DOUBT, "asking failed in an unexpected way"),
)


def silence_error(call: Call, failure: BaseException, *, about: str) -> CatalogError:
    """The error for a request that got no answer. To be raised ``from None``: the failure may quote a header."""
    shown = str(failure)
    row = next(
        row for row in SILENCES if isinstance(failure, row.exceptions) and re.search(row.sign, shown, re.IGNORECASE)
    )
    return CatalogError(row.code, kind_of(call, row.kind), f"{_did_not(call, about)}: {row.text}")


def _did_not(call: Call, about: str) -> str:
    return f"the catalog did not {call} {about}".rstrip()
