"""Every row of the table of refusals, over a real wire: what it means, and how often the request was sent."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from tests.support.odd_server import OddServer, Reply, error_reply, json_reply
from worker.identifiers import TableIdentifier
from worker.lakehouse.cleaning import one_line
from worker.lakehouse.connection import CatalogConnection, CatalogType
from worker.lakehouse.lakehouse import open_lakehouse
from worker.lakehouse.port import Catalog, CatalogError, ErrorCode, ErrorKind
from worker.lakehouse.rest_answers import Answer, origin, read_answer
from worker.lakehouse.rest_errors import ROWS, SILENCES, Call, classify, error_for, silence_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OLD = TableIdentifier(("datasets",), "ds_1")
NEW = TableIdentifier(("main", "ventas"), "ds_1")
LOCATION = "file:///lake/ds_1/metadata/00001-a.metadata.json"

T, P, U = ErrorKind.TRANSIENT, ErrorKind.PERMANENT, ErrorKind.UNKNOWN
E = ErrorCode

CALLS: dict[Call, Callable[[Catalog], object]] = {
    Call.LOAD: lambda catalog: catalog.load(OLD),
    Call.REGISTER: lambda catalog: catalog.register(NEW, LOCATION),
    Call.RENAME: lambda catalog: catalog.rename(OLD, NEW),
    Call.DROP: lambda catalog: catalog.drop(OLD),
    Call.CREATE_NAMESPACE: lambda catalog: catalog.create_namespace(NEW.namespace),
    Call.NAMESPACE: lambda catalog: catalog.namespace_exists(NEW.namespace),
    Call.LIST: lambda catalog: list(catalog.list_tables(NEW.namespace)),
}
READS = {Call.LOAD, Call.NAMESPACE, Call.LIST}
HTML = Reply(404, b"<html><body>no such backend</body></html>", {"Content-Type": "text/html"})


def html(status: int) -> Reply:
    return replace(HTML, status=status)


def empty(status: int) -> Reply:
    return Reply(status, b"")


FILE_GONE = f"Failed to open input stream for file: {LOCATION.replace('file:///', 'file:/')}"

NEEDS_MORE = "There are multiple conflicts: namespace 'main.ventas' must exist, namespace 'main' must exist."
NO_KEY = "The specified key does not exist. (Service: S3, Status Code: 404)"

TABLE = [
    # call, answer, code, kind, requests on the wire
    (Call.LOAD, error_reply(404, "NoSuchTableException"), E.TABLE_MISSING, P, 1),
    (Call.LOAD, error_reply(404, "NoSuchNamespaceException"), E.TABLE_MISSING, P, 1),
    (Call.DROP, error_reply(404, "NoSuchTableException"), E.TABLE_MISSING, P, 1),
    (Call.LOAD, error_reply(404, "NoSuchViewException"), E.TABLE_MISSING, P, 1),
    (Call.DROP, error_reply(404, "NoSuchNamespaceException"), E.TABLE_MISSING, P, 1),
    (Call.RENAME, error_reply(404, "NoSuchTableException"), E.TABLE_MISSING, P, 1),
    (Call.RENAME, error_reply(404, "NoSuchNamespaceException"), E.NAMESPACE_MISSING, P, 1),
    (Call.REGISTER, error_reply(404, "NoSuchNamespaceException"), E.NAMESPACE_MISSING, P, 1),
    (Call.CREATE_NAMESPACE, error_reply(404, "NoSuchNamespaceException"), E.NAMESPACE_MISSING, P, 1),
    (Call.LIST, error_reply(404, "NoSuchNamespaceException"), E.NAMESPACE_MISSING, P, 1),
    (
        Call.RENAME,
        error_reply(409, "", NEEDS_MORE),
        E.NAMESPACE_MISSING,
        P,
        1,
    ),
    (Call.REGISTER, error_reply(409, "", "Namespace 'main' must exist."), E.NAMESPACE_MISSING, P, 1),
    # A metadata file that is gone, as five servers say it.
    (
        Call.REGISTER,
        error_reply(400, "IllegalArgumentException", NO_KEY),
        E.FILE_MISSING,
        P,
        1,
    ),
    (Call.LOAD, error_reply(404, "NotFoundException", FILE_GONE), E.FILE_MISSING, P, 1),
    (Call.LOAD, error_reply(500, "NotFoundException", FILE_GONE), E.FILE_MISSING, P, 1),
    (Call.REGISTER, error_reply(500, "NotFoundException", FILE_GONE), E.FILE_MISSING, P, 1),
    (Call.RENAME, error_reply(500, "NotFoundException", FILE_GONE), E.FILE_MISSING, P, 1),
    (Call.RENAME, error_reply(404, "NotFoundException", FILE_GONE), E.FILE_MISSING, P, 1),
    (Call.REGISTER, error_reply(400, "NotFound", "IO error at `s3://lake/a.metadata.json`"), E.FILE_MISSING, P, 1),
    # The same name for an address that is not served says nothing about a table or a file.
    (Call.LOAD, error_reply(404, "NotFoundException", "HTTP 404 Not Found"), E.UNCLEAR, T, 1),
    (Call.RENAME, error_reply(404, "NotFoundException", "HTTP 404 Not Found"), E.UNCLEAR, U, 1),
    # A 404 without a type is no statement about a table.
    (Call.LOAD, empty(404), E.UNAVAILABLE, T, 1),
    (Call.LOAD, html(404), E.UNAVAILABLE, T, 1),
    (Call.LOAD, json_reply(404, {"message": "nothing here"}), E.UNAVAILABLE, T, 1),
    (Call.DROP, empty(404), E.UNAVAILABLE, T, 1),
    (Call.NAMESPACE, html(404), E.UNAVAILABLE, T, 1),
    (Call.RENAME, empty(404), E.NOT_OFFERED, P, 1),
    (Call.RENAME, html(404), E.NOT_OFFERED, P, 1),
    (Call.REGISTER, empty(404), E.NOT_OFFERED, P, 1),
    (Call.REGISTER, html(404), E.UNAVAILABLE, T, 1),
    # The warehouse as a whole.
    (Call.LOAD, error_reply(404, "NoSuchWarehouseException"), E.UNAVAILABLE, T, 1),
    (Call.DROP, error_reply(404, "NoSuchWarehouseException"), E.UNAVAILABLE, T, 1),
    (Call.LOAD, error_reply(404, "NoSuchCatalogException"), E.UNAVAILABLE, T, 1),
    # Who we are.
    (Call.LOAD, error_reply(401, "NotAuthorizedException"), E.UNAUTHORIZED, T, 1),
    (Call.LOAD, empty(401), E.UNAUTHORIZED, T, 1),
    (Call.DROP, error_reply(419, "AuthenticationTimeoutException"), E.UNAUTHORIZED, T, 1),
    (Call.LOAD, Reply(400, b"invalid HTTP header (authorization)"), E.UNAUTHORIZED, T, 1),
    (Call.LOAD, error_reply(403, "ForbiddenException"), E.FORBIDDEN, P, 1),
    (Call.REGISTER, html(403), E.FORBIDDEN, P, 1),
    (Call.DROP, error_reply(409, "ProtectedTabularDeletionWithoutForce"), E.FORBIDDEN, P, 1),
    # What a server does not have.
    (Call.RENAME, empty(405), E.NOT_OFFERED, P, 1),
    (Call.RENAME, error_reply(406, "UnsupportedOperationException"), E.NOT_OFFERED, P, 1),
    (Call.RENAME, html(501), E.NOT_OFFERED, P, 1),
    (Call.RENAME, json_reply(200, {"Output": {"__type": "x#UnknownOperationException"}}), E.NOT_OFFERED, P, 1),
    # Conflicts.
    (Call.REGISTER, error_reply(409, "AlreadyExistsException"), E.ALREADY_EXISTS, P, 1),
    (Call.REGISTER, error_reply(409, "", "Key 'main.ventas.ds_1' already exists."), E.ALREADY_EXISTS, P, 1),
    (Call.CREATE_NAMESPACE, empty(409), E.ALREADY_EXISTS, P, 1),
    (Call.RENAME, error_reply(409, "", "Key 'datasets.ds_1' does not exist."), E.UNCLEAR, U, 1),
    (Call.REGISTER, error_reply(409, "LocationAlreadyTaken"), E.INVALID, P, 1),
    (Call.RENAME, error_reply(409, "RequestInProgress"), E.UNCLEAR, U, 1),
    (Call.DROP, empty(409), E.UNCLEAR, U, 1),
    # Other refusals.
    (Call.REGISTER, error_reply(400, "InvalidLocation"), E.INVALID, P, 1),
    # Asked for a second time: it may be the credential that this server does not hand out.
    (Call.LOAD, html(400), E.INVALID, P, 2),
    (Call.REGISTER, Reply(422, b"Failed to deserialize the JSON body"), E.INVALID, P, 1),
    # Throttled: a short wait is waited for, where the request may be sent again.
    (Call.LOAD, error_reply(429, "TooManyRequestsException", Retry_After="0"), E.THROTTLED, T, 3),
    (Call.LOAD, error_reply(429, "TooManyRequestsException", Retry_After="120"), E.THROTTLED, T, 1),
    (Call.REGISTER, error_reply(429, "TooManyRequestsException", Retry_After="0"), E.THROTTLED, T, 1),
    # Server errors: only reads are sent again, and not after a plain 500.
    (Call.LOAD, error_reply(500, "RuntimeException"), E.UNCLEAR, T, 1),
    (Call.LOAD, error_reply(500, "NoSuchTableException"), E.UNCLEAR, T, 1),
    (Call.REGISTER, error_reply(500, "NoSuchTableException"), E.UNCLEAR, U, 1),
    (Call.RENAME, error_reply(500, "UncheckedSQLException", "Failed to execute: UPDATE"), E.UNCLEAR, U, 1),
    (Call.CREATE_NAMESPACE, error_reply(500, "UncheckedSQLException"), E.UNCLEAR, U, 1),
    (Call.DROP, empty(500), E.UNCLEAR, U, 1),
    (Call.LOAD, html(502), E.UNAVAILABLE, T, 3),
    (Call.LOAD, html(503), E.UNAVAILABLE, T, 3),
    (Call.LOAD, html(504), E.UNAVAILABLE, T, 3),
    (Call.LIST, html(503), E.UNAVAILABLE, T, 3),
    (Call.NAMESPACE, html(503), E.UNAVAILABLE, T, 3),
    (Call.REGISTER, html(502), E.UNAVAILABLE, U, 1),
    (Call.RENAME, html(503), E.UNAVAILABLE, U, 1),
    (Call.DROP, html(504), E.UNAVAILABLE, U, 1),
    (Call.CREATE_NAMESPACE, html(503), E.UNAVAILABLE, U, 1),
    (Call.DROP, error_reply(503, "MaintenanceModeError", Retry_After="60"), E.UNAVAILABLE, T, 1),
    (Call.RENAME, error_reply(503, "CatalogBackendError", "deadlock detected"), E.UNCLEAR, U, 1),
    (Call.REGISTER, html(408), E.UNCLEAR, U, 1),
    (Call.LOAD, html(408), E.UNCLEAR, T, 1),
    # Successes that are none.
    (Call.LOAD, empty(204), E.UNREADABLE, T, 1),
    (Call.LOAD, empty(200), E.UNREADABLE, T, 1),
    (Call.LOAD, json_reply(200, {}), E.UNREADABLE, T, 1),
    (Call.LOAD, json_reply(200, {"error": {"message": "no", "type": "NoSuchTableException"}}), E.UNREADABLE, T, 1),
    (Call.LOAD, html(200), E.UNREADABLE, T, 1),
    (Call.LIST, json_reply(200, {"identifiers": 7}), E.UNREADABLE, T, 1),
    (Call.REGISTER, json_reply(200, {"error": {"message": "no", "type": "X"}}), E.UNREADABLE, U, 1),
    (Call.RENAME, html(200), E.UNREADABLE, U, 1),
    (Call.DROP, Reply(202, b""), E.UNREADABLE, U, 1),
    # Redirects are not followed, with a body or without.
    (Call.LOAD, Reply(302, b"", {"Location": "https://login.example/?state=x"}), E.UNREADABLE, T, 1),
    (Call.REGISTER, Reply(307, b"", {"Location": "https://login.example/?state=x"}), E.UNREADABLE, U, 1),
    # Silences.
    (Call.LOAD, Reply(fault="reset"), E.UNCLEAR, T, 3),
    (Call.LOAD, Reply(fault="cut"), E.UNCLEAR, T, 3),
    (Call.LOAD, Reply(fault="silence"), E.UNCLEAR, T, 1),
    (Call.REGISTER, Reply(fault="reset"), E.UNCLEAR, U, 1),
    (Call.REGISTER, Reply(fault="cut"), E.UNCLEAR, U, 1),
    (Call.RENAME, Reply(fault="silence"), E.UNCLEAR, U, 1),
    (Call.DROP, Reply(fault="reset"), E.UNCLEAR, U, 1),
    (Call.CREATE_NAMESPACE, Reply(fault="cut"), E.UNCLEAR, U, 1),
]


@contextmanager
def opened(uri: str, *, seconds: float = 2.0) -> Iterator[Catalog]:
    lakehouse = open_lakehouse(CatalogConnection(CatalogType.REST, SecretStr(uri), timeout_seconds=seconds))
    try:
        yield lakehouse.catalog("w_1")
    finally:
        lakehouse.close()


def error_of(catalog: Catalog, call: Call) -> CatalogError:
    with pytest.raises(CatalogError) as caught:
        CALLS[call](catalog)
    return caught.value


def _named(row: tuple[Call, Reply, ErrorCode, ErrorKind, int]) -> str:
    call, reply, *_ = row
    return f"{call.name}-{reply.fault or reply.status}"


@pytest.mark.parametrize(("call", "reply", "code", "kind", "requests"), TABLE, ids=map(_named, TABLE))
def test_what_an_answer_means(call: Call, reply: Reply, code: ErrorCode, kind: ErrorKind, requests: int) -> None:
    patience = 0.3 if reply.fault == "silence" else 5.0
    with OddServer(reply) as server, opened(server.uri, seconds=patience) as catalog:
        catalog_is_known(catalog, server)
        error = error_of(catalog, call)
    assert (error.code, error.kind) == (code, kind), str(error)
    assert len(server.received) == requests
    assert len(str(error).splitlines()) == 1
    assert "Stack.java" not in str(error)
    assert "state=x" not in str(error)


def catalog_is_known(catalog: Catalog, server: OddServer) -> None:
    """Have the catalog asked how it is used, so that only the call itself is counted."""
    replies = server.replies.copy()
    server.replies.clear()
    server.replies.append(json_reply(200, {"namespace": ["main"]}))
    assert catalog.namespace_exists(("main",))
    server.replies.clear()
    server.replies.extend(replies)
    server.received.clear()


def test_every_row_of_the_table_decides_about_some_answer_here() -> None:
    deciding = set()
    for call, reply, *_ in TABLE:
        if not reply.fault:
            answer = _as_read(reply)
            deciding.add(next(number for number, row in enumerate(ROWS) if row.fits(call, answer)))
    only_tokens = {number for number, row in enumerate(ROWS) if row.calls == {Call.TOKEN}}
    assert deciding | only_tokens == set(range(len(ROWS)))


def _as_read(reply: Reply) -> Answer:
    return read_answer(reply.status, reply.body)


def test_a_refused_connection_was_certainly_not_done() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{free.getsockname()[1]}"
    for call in CALLS:
        with opened(uri) as catalog:
            error = error_of(catalog, call)
        assert (error.code, error.kind) == (ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT)
        assert "refuses connections" in str(error)


def test_a_host_that_is_not_known() -> None:
    with opened("http://no-such-host.invalid") as catalog:
        error = error_of(catalog, Call.REGISTER)
    assert (error.code, error.kind) == (ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT)


def test_an_address_that_is_none() -> None:
    with opened("http://[") as catalog:
        error = error_of(catalog, Call.LOAD)
    assert (error.code, error.kind) == (ErrorCode.INVALID, ErrorKind.PERMANENT)


def test_tls_where_none_is_spoken() -> None:
    with OddServer(Reply()) as server, opened(server.uri.replace("http:", "https:")) as catalog:
        error = error_of(catalog, Call.REGISTER)
    assert (error.code, error.kind) == (ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT)
    assert "does not speak TLS" in str(error)


def test_every_silence_is_classified_for_reads_and_changes() -> None:
    for silence in SILENCES:
        assert silence.text
    assert silence_error(Call.DROP, ValueError("hush-hush"), about="it").kind is ErrorKind.UNKNOWN
    assert "hush" not in str(silence_error(Call.LOAD, LookupError("hush-hush"), about="it"))
    assert classify(Call.LOAD, Answer(599)) == (ErrorCode.UNCLEAR, ErrorKind.TRANSIENT)
    assert classify(Call.DROP, Answer(599)) == (ErrorCode.UNCLEAR, ErrorKind.UNKNOWN)


def test_the_location_that_an_answer_names_is_handed_on_normalised() -> None:
    with OddServer(error_reply(500, "NotFoundException", FILE_GONE)) as server, opened(server.uri) as catalog:
        assert error_of(catalog, Call.LOAD).location == LOCATION


def test_what_looks_like_a_credential_is_taken_out_of_a_message() -> None:
    said = "no: Bearer abc.def.ghi at s3://lake/x?X-Amz-Signature=123abc&part=1"
    with OddServer(error_reply(403, "ForbiddenException", said)) as server, opened(server.uri) as catalog:
        text = str(error_of(catalog, Call.LOAD))
    assert "abc.def" not in text
    assert "123abc" not in text
    assert "part=1" in text


@pytest.mark.parametrize(
    "said",
    [
        "at https://a.blob.core.windows.net/c/x?sv=1&sig=HUSH%3D&se=2",
        "sig=HUSH",
        "{s3.secret-access-key=HUSH, s3.region=x}",
        "s3.secret-access-key: HUSH",
        "{'client_secret': 'HUSH HUSH', 'scope': 'x'}",
        '{"client_secret":"HUSH \\"HUSH"}',
        '"{\\"access_token\\": \\"HUSH\\"}"',
        '{"client_secret": "HUSH that was cu',
        "jdbc:postgresql://db/x?user=u&password=HUSH",
        "password = HUSH",
        "password: HUSH",
        "s3://b/k?X-Amz-Credential=HUSH%2F20260101&X-Amz-Security-Token=HUSH%2B/==&X-Amz-Signature=HUSH",
        "Authorization: HUSH",
        "Authorization: AWS4-HMAC-SHA256 Credential=HUSH/s3/aws4_request, SignedHeaders=host, Signature=HUSH",
        "{'Authorization': 'Negotiate HUSH'}",
        "Invalid header value b'Bearer HUSH:HUSH'",
        "https://carl:HUSH@catalog.example/x",
        "https://carl:HU:SH@HUSH@catalog.example/x",
        "https://HUSH@catalog.example/x",
        "postgresql+psycopg://carl:HUSH@db/x",
        "AccountName=a;AccountKey=HUSH==;EndpointSuffix=core.windows.net",
        "rejected eyJIVVNIIjoiSFVTSCJ9.HUSH.HUSH-HUSH",
        "<Error><AWSAccessKeyId>HUSH</AWSAccessKeyId><SignatureProvided>HUSH</SignatureProvided></Error>",
        "<StringToSign>AWS4-HMAC-SHA256\nHUSH</StringToSign>",
    ],
)
def test_no_credential_is_left_on_the_line_that_is_shown(said: str) -> None:
    line = one_line(f"it said: {said} ")
    assert "HUSH" not in line
    assert "HU:SH" not in line
    assert "***" in line


@pytest.mark.parametrize(
    "said",
    [
        "invalid token: expired",
        "InvalidTokenException: the token is expired",
        "SecretNotFoundException: no such key",
        "no X-Amz-SignedHeaders=host in the query",
        "invalid HTTP header (authorization)",
        "at abfss://container@account.dfs.core.windows.net/t/metadata/1.metadata.json",
        "at s3://lake/a@b:c/1.metadata.json, design=1",
        "http://catalog.example:8181/v1",
    ],
)
def test_what_is_no_credential_stays(said: str) -> None:
    assert one_line(said) == said


def test_a_long_answer_is_searched_in_bearable_time() -> None:
    # A search that goes back over what it has read would not end before the test's own time limit.
    for much in ("a" * 500_000, "token" * 100_000, "://:" * 100_000, "secret'" * 50_000, "authorization " * 25_000):
        one_line(much)


@pytest.mark.parametrize(
    ("location", "named"),
    [
        ("https://carl:HUSH@login.example:8443/HUSH?state=HUSH", "https://login.example:8443"),
        ("https://HUSH@login.example", "https://login.example"),
        ("http://[::1]:80/", "http://[::1]:80"),
        ("/login?state=HUSH", "another path"),
        ("http://[HUSH", "what is no address"),
        ("http://carl:HU/SH@login.example", "what is no address"),
    ],
)
def test_of_a_redirect_only_whom_it_leads_to_is_named(location: str, named: str) -> None:
    assert origin(location) == named
    with OddServer(Reply(302, b"", {"Location": location})) as server, opened(server.uri) as catalog:
        assert f"it redirects to {named}, which" in str(error_of(catalog, Call.LOAD))


@pytest.mark.parametrize("kind", ["NoSuchWarehouseException", "NoSuchCatalogException", "NoSuchMetalakeException"])
def test_a_warehouse_that_does_not_exist_is_named_as_such(kind: str) -> None:
    error = error_for(Call.CONFIG, Answer(404, kind, "nothing"), about="for warehouse w_typo")
    assert "for warehouse w_typo: the warehouse does not exist, is inactive or is hidden from us: 404" in str(error)
