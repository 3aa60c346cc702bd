"""A wire to a real REST catalog that notes every request, and loses the one that a test names.

``before``: the request never arrives. ``after``: it takes effect, and its answer is lost. ``down``: nothing gets
through any more.
"""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from typing import Self


@dataclass
class Loss:
    """The ``number``-th counted request, from 1, is lost.

    ``when``: ``before`` it arrives; ``after`` it took effect; ``503``, a proxy's answer although it took effect.
    """

    number: int
    when: str
    happened: bool = False


def counts(target: str) -> bool:
    """Whether a request is one of a move's own: config and namespaces are asked once per process."""
    words = target.partition("?")[0].strip("/").split("/")[1:]
    return words not in (["config"], ["namespaces"]) and not (len(words) == 2 and words[0] == "namespaces")


class LossyWire:
    """``with LossyWire(server_uri) as wire``; ``wire.requests`` are "METHOD target", in the order of arrival."""

    def __init__(self, uri: str) -> None:
        self._there = urlsplit(uri)
        self.requests: list[str] = []
        self.all_requests: list[str] = []
        self.loss: Loss | None = None
        self.down = False
        self._mutex = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def arrive(self, method: str, target: str) -> str | None:
        """Note a request; what happens to it, None for nothing."""
        with self._mutex:
            self.all_requests.append(f"{method} {target}")
            if counts(target):
                self.requests.append(f"{method} {target}")
                if self.loss is not None and not self.loss.happened and len(self.requests) == self.loss.number:
                    self.loss.happened = True
                    return self.loss.when
            return "before" if self.down else None

    def pass_on(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, bytes]:
        """Status, content type and body of the real server's answer."""
        connection = HTTPConnection(self._there.hostname or "", self._there.port, timeout=30)
        try:
            connection.request(method, target, body=body or None, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Content-Type", "application/json"), answer.read()
        finally:
            connection.close()


def _handler(wire: LossyWire) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fate = wire.arrive(self.command, self.path)
            if fate == "before":
                self.hang_up()
                return
            headers = {"Content-Type": "application/json"} if body else {}
            status, kind, answer = wire.pass_on(self.command, self.path, body, headers)
            if fate == "after":
                self.hang_up()
            elif fate == "503":
                self.give(503, "text/html", b"<html>no upstream</html>")
            else:
                self.give(status, kind, answer)

        do_GET = do_POST = do_DELETE = handle_any  # noqa: N815 - the names that the module calls

        def give(self, status: int, kind: str, answer: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def hang_up(self) -> None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """A test reads what was noted, not a log."""

    return Handler
