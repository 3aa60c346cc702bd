"""An HTTP server on loopback that answers whatever a test tells it to, or does not answer at all."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

CONFIG: Final = "/v1/config"


@dataclass(frozen=True)
class Reply:
    """One answer. ``fault``: ``reset`` before an answer, ``silence`` instead of one, ``cut`` in the middle of it."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Received:
    """One request as it came over the wire."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    port: int
    """The client's port: the same for two requests on one connection."""


def json_reply(status: int, content: Any, **headers: str) -> Reply:
    """An answer with a JSON body; ``Retry_After`` becomes ``Retry-After``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, json.dumps(content).encode(), {"Content-Type": "application/json", **named})


def error_reply(status: int, kind: str, message: str = "it is so", **headers: str) -> Reply:
    """A catalog's error, with the stack trace that real servers put into it."""
    stack = ["org.apache.iceberg.Secret.trace(Stack.java:1)"]
    return json_reply(status, {"error": {"message": message, "type": kind, "code": status, "stack": stack}}, **headers)


class OddServer:
    """``with OddServer() as server``; ``replies`` are given in turn, the last one again and again.

    ``config`` answers the question how the catalog is used, which is not counted among ``received``.
    """

    def __init__(self, *replies: Reply, certificate: tuple[Path, Path] | None = None) -> None:
        self.replies = deque(replies)
        self.config = json_reply(200, {"defaults": {}, "overrides": {}})
        self.received: list[Received] = []
        self.config_received: list[Received] = []
        self._ending = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.server_address[1]
        return port

    @property
    def uri(self) -> str:
        """Its address."""
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def next_reply(self, received: Received) -> Reply:
        """Note a request and say what it is answered with."""
        if received.target.startswith(CONFIG):
            self.config_received.append(received)
            return self.config
        self.received.append(received)
        return self.replies.popleft() if len(self.replies) > 1 else self.replies[0]

    def wait_for_the_end(self) -> None:
        """What a server does that never answers: nothing, until the test is over."""
        self._ending.wait(30)


def _handler(server: OddServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        owner: ClassVar[OddServer] = server

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            received = Received(self.command, self.path, dict(self.headers), body, self.client_address[1])
            self.answer(self.owner.next_reply(received))

        do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = handle_any  # noqa: N815 - the names that the module calls

        def answer(self, reply: Reply) -> None:
            if reply.fault == "silence":
                self.owner.wait_for_the_end()
                self.close_connection = True
                return
            if reply.fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
                return
            # The module sends a date of its own, unless a test gives one.
            (self.send_response_only if "Date" in reply.headers else self.send_response)(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            length = len(reply.body) + (1000 if reply.fault == "cut" else 0)
            if reply.status != 204:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(reply.body)
            if reply.fault == "cut":
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """A test reads what was received, not a log."""

    return Handler
