"""The benchmarks' proxy: it adds the latency that is asked for, counts what passes, and loses no byte."""

from __future__ import annotations

import select
import threading
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from benchmarks.proxy import Proxy, _End, kind_of
from benchmarks.stack import ProxyProcess
from tests.support.clocks import a_clock_of_its_own

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGE = bytes(range(256)) * 100_000
"""More than the kernel keeps on the way, so that some of it waits in the proxy."""


class Echo(BaseHTTPRequestHandler):
    """Sends back what it got, or a large body where it got nothing."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(LARGE)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        assert isinstance(self.server, EchoServer)
        self.server.written.set()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class EchoServer(ThreadingHTTPServer):
    """On a free port. ``written``: it has got rid of a whole answer."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.written = threading.Event()


@dataclass(frozen=True)
class Proxied:
    """A proxy before a server."""

    process: ProxyProcess
    written: threading.Event

    @property
    def port(self) -> int:
        return self.process.port


@pytest.fixture
def proxy() -> Iterator[Proxied]:
    with EchoServer(Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with closing(ProxyProcess(server.server_port)) as running:
            yield Proxied(running, server.written)
        server.shutdown()
        thread.join()


def send(connection: HTTPConnection, method: str, target: str, body: bytes | None = None) -> bytes:
    connection.request(method, target, body)
    return connection.getresponse().read()


def test_it_loses_no_byte_in_either_direction(proxy: Proxied) -> None:
    proxy.process.delay(0.001)
    with closing(HTTPConnection("127.0.0.1", proxy.port, timeout=30)) as connection:
        assert send(connection, "POST", "/v1/namespaces", LARGE) == LARGE


def test_it_keeps_what_a_slow_reader_has_not_taken_yet(proxy: Proxied) -> None:
    with closing(HTTPConnection("127.0.0.1", proxy.port, timeout=30)) as connection:
        connection.request("GET", "/v1/config")
        assert proxy.written.wait(30), "the proxy does not take what it cannot pass on"
        assert connection.getresponse().read() == LARGE


def test_no_request_passes_sooner_than_it_may() -> None:
    request = b"POST /v1/tables/rename HTTP/1.1\r\n\r\n"
    client, server = mock.Mock(**{"recv.return_value": request}), mock.Mock(**{"fileno.return_value": 1})
    server.send.side_effect = len
    here = _End(client, is_client=True, peer=_End(server, is_client=False))
    with (
        mock.patch("benchmarks.proxy.socket"),
        mock.patch("benchmarks.proxy.select.epoll"),
        a_clock_of_its_own("benchmarks.proxy") as pass_time,
    ):
        passing = Proxy(0)
        passing.delay = 0.5
        passing._serve(here, select.EPOLLIN)
        for seconds in (0, 0.25):
            pass_time(seconds)
            passing._pass_due()
            server.send.assert_not_called()
        pass_time(0.25)
        passing._pass_due()
    server.send.assert_called_once_with(request)


def test_it_counts_requests_by_what_they_ask(proxy: Proxied) -> None:
    with closing(HTTPConnection("127.0.0.1", proxy.port, timeout=30)) as connection:
        send(connection, "GET", "/v1/config?warehouse=lake")
        send(connection, "POST", "/v1/tables/rename", b"{}")
        send(connection, "POST", "/v1/tables/rename", b"{}")
    assert proxy.process.counts() == {"config": 1, "rename": 2}
    proxy.process.reset()
    assert proxy.process.counts() == {}


@pytest.mark.parametrize(
    ("method", "target", "kind"),
    [
        ("GET", "/v1/config?warehouse=w", "config"),
        ("POST", "/v1/oauth/tokens", "token"),
        ("GET", "/v1/namespaces/a%1Fb/tables/t", "load"),
        ("DELETE", "/v1/namespaces/a/tables/t?purgeRequested=false", "drop"),
        ("POST", "/v1/namespaces/a/register", "register"),
        ("POST", "/v1/tables/rename", "rename"),
        ("GET", "/v1/namespaces/a/tables?pageToken=", "list"),
        ("POST", "/v1/namespaces", "namespace"),
        ("GET", "/v1/namespaces/a", "namespace"),
        ("GET", "/elsewhere", "other"),
    ],
)
def test_what_a_request_asks(method: str, target: str, kind: str) -> None:
    assert kind_of(method, target) == kind
