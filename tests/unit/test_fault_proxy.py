"""The fault proxy does what it is told, to the request that it is told, and nothing else."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from http.client import HTTPConnection, RemoteDisconnected
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.support.fault_proxy import (
    FaultProxy,
    RemoteFaults,
    Rule,
    delay,
    hang_up,
    lie,
    refuse,
    rule_from,
    stale,
    twice,
)
from tests.support.rest_double import TEMPERAMENTS, Kind, RestDouble

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.fault_proxy import Fault

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
NAMESPACES = "/v1/namespaces"
TABLES = "/v1/namespaces/a/tables"
TABLE = "/v1/namespaces/a/tables/t"
RENAME = {"source": {"namespace": ["a"], "name": "t"}, "destination": {"namespace": ["a"], "name": "u"}}


@dataclass(frozen=True)
class Got:
    """An answer as a client sees it."""

    status: int
    content: Any
    headers: dict[str, str]


def ask(uri: str, method: str, target: str, body: object = None) -> Got:
    """One request on a connection of its own. Raises what a broken connection raises."""
    there = urlsplit(uri)
    connection = HTTPConnection(there.hostname or "", there.port, timeout=10)
    try:
        connection.request(method, target, body=None if body is None else json.dumps(body))
        response = connection.getresponse()
        content = response.read()
        is_json = response.headers.get("Content-Type", "") == "application/json" and content
        return Got(response.status, json.loads(content) if is_json else content, dict(response.headers))
    finally:
        connection.close()


class Stand:
    """A catalog with one table, and the proxy before it."""

    def __init__(self, double: RestDouble, proxy: FaultProxy) -> None:
        self.double = double
        self.proxy = proxy

    def add(self, kind: Kind | None, fault: Fault, **when: Any) -> int:
        """One rule more."""
        return self.proxy.add(Rule(kind, fault, **when))

    def ask(self, method: str, target: str, body: object = None) -> Got:
        """One request through the proxy."""
        return ask(self.proxy.uri, method, target, body)

    def load(self) -> Got:
        """GET the table through the proxy."""
        return self.ask("GET", TABLE)

    def reached(self, kind: Kind) -> int:
        """How many requests of a kind the catalog saw."""
        return self.double.count(kind)


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    with RestDouble() as double, FaultProxy(double.uri) as proxy:
        double.make_warehouse("w", f"file://{tmp_path}/warehouse")
        assert ask(double.uri, "POST", NAMESPACES, {"namespace": ["a"]}).status == 200
        assert ask(double.uri, "POST", TABLES, {"name": "t", "schema": SCHEMA}).status == 200
        yield Stand(double, proxy)
        assert not double.failures


def test_without_a_rule_everything_passes_as_it_is(stand: Stand) -> None:
    assert stand.load().content == ask(stand.double.uri, "GET", TABLE).content
    assert stand.ask("HEAD", TABLE).status == 204
    assert stand.ask("GET", "/v1/namespaces/a/tables/nope").content["error"]["type"] == "NoSuchTableException"
    assert stand.ask("POST", "/v1/tables/rename", RENAME).status == 204
    assert stand.proxy.counts() == {}
    assert stand.proxy.requests == {Kind.LOAD: 2, Kind.HEAD: 1, Kind.RENAME: 1}


@pytest.mark.parametrize("status", [401, 419, 429, 500, 502, 503, 504])
def test_a_status_before_the_work(stand: Stand, status: int) -> None:
    stand.add(Kind.RENAME, refuse(status, retry_after="7"))
    got = stand.ask("POST", "/v1/tables/rename", RENAME)
    assert (got.status, got.headers["Retry-After"], got.headers["Content-Type"]) == (status, "7", "text/html")
    assert stand.reached(Kind.RENAME) == 0
    assert stand.load().status == 200
    assert stand.proxy.counts() == {f"rename: {status}": 1}


@pytest.mark.parametrize("status", [401, 419, 429, 500, 502, 503, 504])
def test_a_status_after_the_work(stand: Stand, status: int) -> None:
    stand.add(Kind.RENAME, refuse(status, after=True))
    got = stand.ask("POST", "/v1/tables/rename", RENAME)
    assert got.status == status
    assert "Retry-After" not in got.headers
    assert stand.load().status == 404
    assert stand.ask("GET", f"{TABLES}/u").status == 200


def test_an_error_object_where_a_type_is_given(stand: Stand) -> None:
    stand.add(Kind.RENAME, refuse(503, error_type="CatalogBackendError"))
    got = stand.ask("POST", "/v1/tables/rename", RENAME)
    assert (got.content["error"]["type"], got.content["error"]["code"]) == ("CatalogBackendError", 503)


@pytest.mark.parametrize(("after", "status"), [(False, 200), (True, 404)])
def test_a_broken_connection(stand: Stand, after: bool, status: int) -> None:
    stand.add(Kind.DROP, hang_up(after=after))
    with pytest.raises((ConnectionError, RemoteDisconnected)):
        stand.ask("DELETE", f"{TABLE}?purgeRequested=false")
    assert stand.load().status == status


@pytest.mark.parametrize("after", [False, True])
def test_a_delay(stand: Stand, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[tuple[float, int]] = []
    clock = SimpleNamespace(sleep=lambda seconds: slept.append((seconds, stand.reached(Kind.LOAD))))
    monkeypatch.setattr("tests.support.fault_proxy.time", clock)
    stand.add(Kind.LOAD, delay(3600, after=after))
    assert stand.load().status == 200
    assert slept == [(3600, int(after))]


def test_twice_is_sent_twice_and_answered_with_the_second_answer(stand: Stand) -> None:
    stand.add(Kind.RENAME, twice())
    assert stand.ask("POST", "/v1/tables/rename", RENAME).status == 404
    assert stand.reached(Kind.RENAME) == 2
    assert stand.ask("GET", f"{TABLES}/u").status == 200


def test_stale_is_the_last_answer_of_the_same_get(stand: Stand) -> None:
    before = stand.load()
    stand.ask("POST", TABLE, {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]})
    number = stand.add(Kind.LOAD, stale(), times=None)
    assert stand.load().content == before.content
    stand.proxy.remove(number)
    assert stand.load().content["metadata"]["properties"] == {"a": "b"}


def test_stale_without_an_earlier_answer_goes_through_and_is_not_counted(stand: Stand) -> None:
    stand.add(Kind.LOAD, stale())
    assert stand.load().status == 200
    assert stand.proxy.counts() == {}


def test_lies(stand: Stand) -> None:
    stand.add(Kind.LOAD, lie(404))
    stand.add(Kind.RENAME, lie(409, after=True))
    assert stand.load().content["error"]["type"] == "NoSuchTableException"
    assert stand.load().status == 200
    assert stand.ask("POST", "/v1/tables/rename", RENAME).content["error"]["type"] == "AlreadyExistsException"
    assert stand.load().status == 404


def test_the_nth_request_of_the_kind_and_as_many_as_told(stand: Stand) -> None:
    stand.load()
    stand.add(Kind.LOAD, refuse(500), first=2, times=2)
    stand.ask("HEAD", TABLE)
    assert [stand.load().status for _ in range(5)] == [200, 500, 500, 200, 200]


def test_only_what_it_is_about(stand: Stand) -> None:
    stand.add(None, refuse(500), about="tables/other", times=None)
    stand.add(Kind.RENAME, refuse(503), about='"name": "t"')
    assert stand.load().status == 200
    assert stand.ask("GET", f"{TABLES}/other").status == 500
    assert stand.ask("POST", "/v1/tables/rename", RENAME).status == 503


def test_the_first_rule_that_hits_wins(stand: Stand) -> None:
    stand.add(Kind.LOAD, refuse(500))
    stand.add(Kind.LOAD, refuse(503), times=2)
    assert [stand.load().status for _ in range(3)] == [500, 503, 200]


def test_a_rate_hits_a_part_and_the_same_part_for_a_seed(stand: Stand) -> None:
    def hits(seed: int) -> list[int]:
        with FaultProxy(stand.double.uri, seed=seed) as proxy:
            proxy.add(Rule(Kind.HEAD, refuse(500), times=None, rate=0.5))
            return [ask(proxy.uri, "HEAD", TABLE).status for _ in range(40)]

    assert hits(1) == hits(1)
    assert set(hits(1)) == {204, 500}
    assert hits(1) != hits(2)


def test_no_server_is_a_gateways_502(tmp_path: Path) -> None:
    with RestDouble() as gone:
        uri = gone.uri
    with FaultProxy(uri) as proxy:
        assert ask(proxy.uri, "GET", "/v1/config").status == 502


def test_a_server_that_names_its_own_address_names_the_proxys(tmp_path: Path) -> None:
    with RestDouble(TEMPERAMENTS["lakekeeper-0.13.3"]) as double, FaultProxy(double.uri) as proxy:
        double.make_warehouse("w", f"file://{tmp_path}")
        got = ask(proxy.uri, "GET", "/catalog/v1/config?warehouse=w")
        assert got.content["overrides"]["uri"] == f"{proxy.uri}/catalog"


@pytest.mark.parametrize(
    ("method", "target", "kind"),
    [
        ("GET", "/v1/config?warehouse=w", Kind.CONFIG),
        ("POST", "/v1/oauth/tokens", Kind.TOKEN),
        ("POST", "/realms/lake/protocol/openid-connect/token", Kind.TOKEN),
        ("GET", "/catalog/v1/w/namespaces/a%1Fb/tables/t?snapshots=refs", Kind.LOAD),
        ("HEAD", "/v1/namespaces/a/tables/t", Kind.HEAD),
        ("POST", "/iceberg/v1/w/namespaces/a/register", Kind.REGISTER),
        ("POST", "/v1/w/tables/rename", Kind.RENAME),
        ("DELETE", "/v1/w/namespaces/a/tables/t?purgeRequested=false", Kind.DROP),
        ("POST", "/v1/w/namespaces", Kind.CREATE_NAMESPACE),
        ("GET", "/v1/w/namespaces/a", Kind.GET_NAMESPACE),
        ("GET", "/v1/w/namespaces/a/tables", Kind.LIST),
        ("POST", "/v1/w/namespaces/a/tables/tokens", Kind.COMMIT),
        ("POST", "/v1/w/transactions/commit", Kind.OTHER),
    ],
)
def test_every_kind_is_known_by_its_address(stand: Stand, method: str, target: str, kind: Kind) -> None:
    stand.add(kind, refuse(418))
    assert stand.ask(method, target).status == 418
    assert list(stand.proxy.requests) == [kind]


def test_a_rule_comes_whole_over_the_wire() -> None:
    rule = Rule(Kind.LOAD, refuse(503, after=True, retry_after="2", error_type="X"), 2, None, "ds_1", 0.5)
    with FaultProxy("http://127.0.0.1:9") as proxy:
        faults = RemoteFaults(proxy.uri)
        assert faults.add(rule) == 1
        assert proxy._rules[1].rule == rule
        faults.remove(1)
        assert not proxy._rules
    assert rule_from({"kind": None, "fault": {"act": "hang_up"}}) == Rule(None, hang_up())


def test_as_a_process_of_its_own(stand: Stand) -> None:
    command = [sys.executable, "-m", "tests.support.fault_proxy", stand.double.uri, "--seed", "7"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().strip()
        faults = RemoteFaults(uri)
        number = faults.add(Rule(Kind.LOAD, refuse(503), times=None))
        assert ask(uri, "GET", TABLE).status == 503
        faults.remove(number)
        assert ask(uri, "GET", TABLE).status == 200
        assert faults.counts() == {"load: 503": 1}
        assert faults.requests() == {"load": 2}
        faults.clear()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
