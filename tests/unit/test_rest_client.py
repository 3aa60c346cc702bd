"""What the REST client sends, and what it takes out of an answer."""

from __future__ import annotations

import json
import os
import warnings
from collections import deque
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from tests.support.certificates import self_signed
from tests.support.clocks import a_clock_of_its_own
from tests.support.odd_server import OddServer, Reply, error_reply, json_reply
from worker.identifiers import TableIdentifier
from worker.lakehouse.connection import CatalogAuth, CatalogConnection, CatalogType
from worker.lakehouse.lakehouse import OpenLakehouse, open_lakehouse
from worker.lakehouse.port import Catalog, CatalogError, ErrorCode, ErrorKind
from worker.lakehouse.rest_answers import same_origin
from worker.lakehouse.rest_wire import retry_after

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OLD = TableIdentifier(("datasets",), "ds_1")
NEW = TableIdentifier(("main", "ventas"), "ds_1")
FREE = json_reply(200, {"namespace": ["main"], "properties": {}})
MISSING = error_reply(404, "NoSuchTableException")


def metadata(**changes: Any) -> dict[str, Any]:
    snapshot = {"snapshot-id": 7, "sequence-number": 3, "manifest-list": "s3://lake/t/snap.avro"}
    return {
        "format-version": 2,
        "table-uuid": "9C12D441-03FE-4693-9A96-A0705DDF69C1",
        "location": "file:/lake/t",
        "last-sequence-number": 3,
        "current-snapshot-id": 7,
        "snapshots": [{**snapshot, "snapshot-id": 6}, {**snapshot, "summary": {"total-records": "42"}}],
        "metadata-log": [{"metadata-file": "file:/lake/t/metadata/0.metadata.json", "timestamp-ms": 1}],
        **changes,
    }


def loaded(**changes: Any) -> Reply:
    location = "file:/lake/t/metadata/1.metadata.json"
    return json_reply(200, {"metadata-location": location, "metadata": metadata(), **changes})


@contextmanager
def lakehouse(server: OddServer, **changes: Any) -> Iterator[OpenLakehouse]:
    connection = CatalogConnection(CatalogType.REST, SecretStr(server.uri), timeout_seconds=5.0)
    opened = open_lakehouse(replace(connection, **changes))
    yield opened
    opened.close()


@contextmanager
def catalog(server: OddServer, **changes: Any) -> Iterator[Catalog]:
    with lakehouse(server, **changes) as opened:
        yield opened.catalog("w_1")


def refused(action: Any) -> CatalogError:
    with pytest.raises(CatalogError) as caught:
        action()
    return caught.value


def test_a_load_takes_what_the_protocol_needs() -> None:
    with OddServer(loaded()) as server, catalog(server) as opened:
        table = opened.load(OLD)
    assert table.uuid == "9c12d441-03fe-4693-9a96-a0705ddf69c1"
    assert table.metadata_location == "file:///lake/t/metadata/1.metadata.json"
    assert table.location == "file:///lake/t"
    assert table.metadata_log == {"file:///lake/t/metadata/0.metadata.json"}
    assert (table.snapshot_id, set(table.snapshot_ids)) == (7, {6, 7})
    assert (table.row_count, table.sequence_number, table.format_version) == (42, 3, 2)


@pytest.mark.parametrize(
    ("changes", "snapshot_id", "row_count"),
    [
        ({"current-snapshot-id": None}, None, 0),
        ({"current-snapshot-id": -1}, None, 0),
        ({"snapshots": [{"snapshot-id": 7}]}, 7, None),
        ({"snapshots": [{"snapshot-id": 7, "summary": {"total-records": "many"}}]}, 7, None),
    ],
)
def test_snapshots_and_rows_that_are_not_told(changes: Any, snapshot_id: int | None, row_count: int | None) -> None:
    with OddServer(loaded(metadata=metadata(**changes))) as server, catalog(server) as opened:
        table = opened.load(OLD)
    assert (table.snapshot_id, table.row_count) == (snapshot_id, row_count)


@pytest.mark.parametrize("changes", [{"table-uuid": None}, {"current-snapshot-id": 99}, {"format-version": "two"}])
def test_metadata_that_cannot_be_relied_on(changes: Any) -> None:
    with OddServer(loaded(metadata=metadata(**changes))) as server, catalog(server) as opened:
        error = refused(lambda: opened.load(OLD))
    assert (error.code, error.kind) == (ErrorCode.UNREADABLE, ErrorKind.TRANSIENT)


def test_a_load_without_a_metadata_location_proves_nothing() -> None:
    with OddServer(loaded(**{"metadata-location": None})) as server, catalog(server) as opened:
        assert refused(lambda: opened.load(OLD)).code is ErrorCode.UNREADABLE


def test_requests_are_what_the_specification_says() -> None:
    with OddServer(json_reply(200, {})) as server, catalog(server) as opened:
        opened.register(NEW, "s3://lake/a.metadata.json")
        opened.rename(OLD, NEW)
        opened.drop(TableIdentifier(("a b", "c/d"), "e.f"))
        opened.create_namespace(NEW.namespace)
        opened.namespace_exists(NEW.namespace)
    register, rename, drop, create, exists = server.received
    assert (register.method, register.target) == ("POST", "/v1/namespaces/main%1Fventas/register")
    assert json.loads(register.body) == {
        "name": "ds_1",
        "metadata-location": "s3://lake/a.metadata.json",
        "overwrite": False,
    }
    assert (rename.method, rename.target) == ("POST", "/v1/tables/rename")
    assert json.loads(rename.body) == {
        "source": {"namespace": ["datasets"], "name": "ds_1"},
        "destination": {"namespace": ["main", "ventas"], "name": "ds_1"},
    }
    assert (drop.method, drop.target) == ("DELETE", "/v1/namespaces/a%20b%1Fc%2Fd/tables/e.f?purgeRequested=false")
    assert (create.method, create.target) == ("POST", "/v1/namespaces")
    assert json.loads(create.body) == {"namespace": ["main", "ventas"], "properties": {}}
    assert (exists.method, exists.target) == ("GET", "/v1/namespaces/main%1Fventas")


def test_one_connection_carries_every_request_of_every_warehouse() -> None:
    with OddServer(FREE) as server, lakehouse(server) as opened:
        for warehouse in ("w_1", "w_2", "w_1"):
            opened.catalog(warehouse).namespace_exists(("main",))
    assert [received.target for received in server.config_received] == [
        "/v1/config?warehouse=w_1",
        "/v1/config?warehouse=w_2",
    ]
    assert len(server.received) == 3
    assert len({received.port for received in (*server.received, *server.config_received)}) == 1


def test_prefix_separator_and_page_size_come_from_the_catalog() -> None:
    pages = [
        json_reply(200, {"identifiers": [{"namespace": ["main", "ventas"], "name": "a"}], "next-page-token": "2&x"}),
        json_reply(200, {"identifiers": [{"namespace": ["main", "ventas"], "name": "b"}], "next-page-token": None}),
    ]
    with OddServer(*pages) as server, catalog(server) as opened:
        server.config = json_reply(
            200,
            {
                "defaults": {"prefix": "w1", "rest-page-size": "1"},
                "overrides": {"namespace-separator": "%2E", "prefix": "w2"},
            },
        )
        assert [str(name) for name in opened.list_tables(NEW.namespace)] == ["main.ventas.a", "main.ventas.b"]
    assert [received.target for received in server.received] == [
        "/v1/w2/namespaces/main%2Eventas/tables?pageToken=&pageSize=1",
        "/v1/w2/namespaces/main%2Eventas/tables?pageToken=2%26x&pageSize=1",
    ]


def test_pages_that_lead_in_a_circle_end() -> None:
    page = json_reply(200, {"identifiers": [], "next-page-token": "again"})
    with OddServer(page) as server, catalog(server) as opened:
        assert refused(lambda: list(opened.list_tables(NEW.namespace))).code is ErrorCode.UNREADABLE
    assert len(server.received) == 2


def test_the_catalogs_own_address_is_used_from_then_on() -> None:
    with OddServer(FREE) as server, catalog(server) as opened:
        server.config = json_reply(200, {"overrides": {"uri": server.uri + "/catalog/v1"}})
        assert opened.namespace_exists(("main",))
    assert [received.target for received in server.received] == ["/catalog/v1/namespaces/main"]


@pytest.mark.parametrize("address", ["{other}", "{other}/catalog", "http://[::1", "nowhere", "", "http:///v1"])
def test_another_servers_address_is_not_used_and_gets_no_token(address: str) -> None:
    with OddServer(FREE) as other, OddServer(FREE) as server, catalog(server) as opened:
        server.config = json_reply(200, {"overrides": {"uri": address.format(other=other.uri)}})
        error = refused(lambda: opened.namespace_exists(("main",)))
    assert (error.code, error.kind) == (ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT)
    assert "REROOT_CATALOG_URI" in str(error)
    assert (other.received, other.config_received, server.received) == ([], [], [])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a/x", "https://A:443", True),
        ("http://a", "https://a", False),
        ("http://a:80", "http://a:8181", False),
        ("http://a@b", "http://a", False),
    ],
)
def test_an_origin_is_scheme_host_and_port(one: str, other: str, *, same: bool) -> None:
    assert same_origin(one, other) is same


@pytest.mark.parametrize(("suffix", "path"), [("", ""), ("/", ""), ("/v1", ""), ("/iceberg/", "/iceberg")])
def test_the_address_may_be_given_with_or_without_its_version(suffix: str, path: str) -> None:
    with OddServer(FREE) as server:
        server.config = json_reply(200, {})
        opened = open_lakehouse(CatalogConnection(CatalogType.REST, SecretStr(server.uri + suffix)))
        if path:
            server.replies.appendleft(json_reply(200, {}))
        assert opened.catalog("w_1").namespace_exists(("main",))
        opened.close()
    assert server.received[-1].target == f"{path}/v1/namespaces/main"


def test_what_a_catalog_does_not_offer_is_not_asked() -> None:
    with OddServer(FREE) as server, catalog(server) as opened:
        server.config = json_reply(200, {"endpoints": ["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"]})
        for action in (lambda: opened.rename(OLD, NEW), lambda: opened.register(NEW, "s3://lake/a.metadata.json")):
            error = refused(action)
            assert (error.code, error.kind) == (ErrorCode.NOT_OFFERED, ErrorKind.PERMANENT)
    assert server.received == []


@pytest.mark.parametrize("address", ["catalog.example:8181", "ftp://catalog.example", ""])
def test_an_address_must_say_how_it_is_spoken_to(address: str) -> None:
    opened = open_lakehouse(CatalogConnection(CatalogType.REST, SecretStr(address)))
    error = refused(lambda: opened.catalog("w_1").load(OLD))
    assert (error.code, error.kind) == (ErrorCode.INVALID, ErrorKind.PERMANENT)
    assert "must start with http" in str(error)


def test_an_unanswered_question_how_to_use_it_is_asked_again() -> None:
    with OddServer(FREE) as server, catalog(server) as opened:
        server.config = error_reply(500, "RuntimeException")
        assert refused(lambda: opened.load(OLD)).code is ErrorCode.UNCLEAR
        server.config = json_reply(200, {})
        assert opened.namespace_exists(("main",))


class TestWhatACatalogSaidOfItsUse:
    """It is remembered, but not for ever."""

    @pytest.mark.parametrize(
        "refusal",
        [
            Reply(404, b""),
            Reply(404, b"<html>no such backend</html>"),
            error_reply(404, "NoSuchWarehouseException"),
            error_reply(404, "NotFoundException", "HTTP 404 Not Found"),
            error_reply(400, "InvalidWarehouseId"),
            Reply(200, b"<html>log in</html>"),
        ],
    )
    def test_is_asked_again_where_it_led_to_nothing(self, refusal: Reply) -> None:
        with OddServer(refusal) as server, catalog(server) as opened:
            refused(lambda: opened.load(OLD))
            server.config = json_reply(200, {"defaults": {"prefix": "anew"}})
            server.replies = deque([loaded()])
            opened.load(OLD)
            assert server.received[-1].target == "/v1/anew/namespaces/datasets/tables/ds_1"

    def test_is_asked_once_where_only_a_name_is_missing(self) -> None:
        replies = [
            MISSING,
            error_reply(404, "NoSuchNamespaceException"),
            error_reply(503, "CatalogBackendError"),
            error_reply(400, "IllegalArgumentException", "No credential provider is set"),
            loaded(),
        ]
        with OddServer(*replies) as server, catalog(server) as opened:
            for action in (lambda: opened.load(OLD), lambda: opened.rename(OLD, NEW), lambda: opened.drop(OLD)):
                refused(action)
            opened.load(OLD)
            assert len(server.config_received) == 1

    def test_is_asked_again_after_ten_minutes(self) -> None:
        with (
            a_clock_of_its_own("worker.lakehouse.rest") as pass_time,
            OddServer(FREE) as server,
            catalog(server) as opened,
        ):
            opened.namespace_exists(("main",))
            pass_time(599)
            opened.namespace_exists(("main",))
            assert len(server.config_received) == 1
            pass_time(2)
            server.config = json_reply(200, {"defaults": {"prefix": "anew"}})
            opened.namespace_exists(("main",))
            assert len(server.config_received) == 2
            assert server.received[-1].target == "/v1/anew/namespaces/main"

    def test_is_used_on_where_it_is_only_old_and_asked_again_soon(self) -> None:
        with (
            a_clock_of_its_own("worker.lakehouse.rest") as pass_time,
            OddServer(FREE) as server,
            catalog(server) as opened,
        ):
            server.config = json_reply(200, {"defaults": {"prefix": "w"}})
            opened.namespace_exists(("main",))
            server.config = error_reply(500, "RuntimeException")
            pass_time(601)
            opened.namespace_exists(("main",))
            opened.namespace_exists(("main",))
            assert len(server.config_received) == 2
            pass_time(61)
            server.config = json_reply(200, {})
            opened.namespace_exists(("main",))
            assert [received.target for received in server.received] == [
                *["/v1/w/namespaces/main"] * 3,
                "/v1/namespaces/main",
            ]

    def test_is_asked_where_the_settings_say_also_after_it_led_elsewhere(self) -> None:
        with OddServer(Reply(404, b""), FREE) as server, catalog(server) as opened:
            server.config = json_reply(200, {"overrides": {"uri": server.uri + "/elsewhere"}})
            refused(lambda: opened.load(OLD))
            server.config = json_reply(200, {})
            assert opened.namespace_exists(("main",))
            assert [received.target.split("/")[1] for received in server.received] == ["elsewhere", "v1"]


def test_a_read_is_sent_again_until_it_is_answered() -> None:
    replies = [Reply(503, b"", {"Retry-After": "0"}), Reply(fault="reset"), FREE]
    with OddServer(*replies) as server, catalog(server) as opened:
        assert opened.namespace_exists(("main",))
    assert len(server.received) == 3


class TestRetryAfter:
    def test_in_seconds(self) -> None:
        assert retry_after("17") == 17.0

    def test_as_a_date(self) -> None:
        asked = retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True))
        assert asked is not None
        assert 80 < asked <= 90

    def test_never_longer_than_five_minutes_nor_negative(self) -> None:
        assert retry_after("86400") == 300.0
        assert retry_after("inf") == 300.0
        assert retry_after("-5") == 0.0
        assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0

    @pytest.mark.parametrize("value", [None, "", "soon", "nan", "Wed, 99 Oct"])
    def test_what_is_no_time_is_no_request(self, value: str | None) -> None:
        assert retry_after(value) is None

    def test_reaches_the_caller(self) -> None:
        reply = error_reply(429, "TooManyRequestsException", Retry_After="42")
        with OddServer(reply) as server, catalog(server) as opened:
            assert refused(lambda: opened.drop(OLD)).retry_after == 42.0


class TestStorageOptions:
    def test_the_credential_of_the_longest_prefix_wins(self) -> None:
        credentials = [
            {"prefix": "file:/lake", "config": {"s3.access-key-id": "wide"}},
            {"prefix": "file:/lake/t", "config": {"s3.access-key-id": "narrow"}},
            {"prefix": "file:/lake/tx", "config": {"s3.access-key-id": "sibling"}},
        ]
        config = {"s3.access-key-id": "table", "s3.region": "auto"}
        reply = loaded(config=config, **{"storage-credentials": credentials})
        with OddServer(reply) as server, catalog(server) as opened:
            table = opened.load(OLD)
        assert table.storage == {"s3.access-key-id": "narrow", "s3.region": "auto"}
        assert "narrow" not in repr(table)

    def test_a_server_does_not_choose_the_code_that_opens_files(self) -> None:
        reply = loaded(config={"py-io-impl": "os.path"})
        with OddServer(reply) as server, catalog(server) as opened:
            table = opened.load(OLD)
            location = str(table.metadata_location)
            assert not opened.file_missing(location, table)
            options = opened._storage(table)._options  # type: ignore[attr-defined]
        assert "py-io-impl" not in options


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    with OddServer(FREE, certificate=certificate) as server:
        with catalog(server) as opened:
            error = refused(lambda: opened.drop(OLD))
        assert (error.code, error.kind) == (ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT)
        assert "certificate is not trusted" in str(error)
        # The positive control: the same server, once somebody vouches for it.
        with catalog(server, properties={"ssl.cabundle": SecretStr(str(certificate[0]))}) as opened:
            assert opened.namespace_exists(("main",))


def test_a_fork_shares_no_connection() -> None:
    with OddServer(FREE) as server, lakehouse(server) as opened:
        parent = opened.catalog("w_1")
        parent.namespace_exists(("main",))
        with warnings.catch_warnings():
            # Python 3.12 and later warn of the test server's threads; the child touches none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            fresh = opened.catalog("w_1")
            os._exit(0 if fresh is not parent and fresh.namespace_exists(("main",)) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        parent.namespace_exists(("main",))
        assert opened.catalog("w_1") is parent
    first, forked, second = server.received
    assert first.port == second.port
    assert forked.port != first.port


def test_secrets_are_absent_from_every_repr() -> None:
    connection = CatalogConnection(
        CatalogType.REST,
        SecretStr("http://user:hidden1@127.0.0.1:1"),
        auth=CatalogAuth.OAUTH2,
        oauth2_token_url="http://user:hidden6@127.0.0.1:1/token",
        password=SecretStr("hidden2"),
        token=SecretStr("hidden3"),
        client_secret=SecretStr("hidden4"),
        properties={"s3.secret-access-key": SecretStr("hidden5")},
    )
    assert "hidden" not in repr(replace(connection, oauth2_token_url=None))
    opened = open_lakehouse(connection)
    assert "hidden" not in str(refused(lambda: opened.catalog("w_1").load(OLD)))
