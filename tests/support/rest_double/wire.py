"""HTTP/1.1 on loopback in threads of this process: requests come in as values, answers go out as values.

The standard library's handler parses headers as mail, at several times the cost of everything else that a double does.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from io import BufferedReader
    from typing import Self

JSON: Final = "application/json"
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
_BODILESS: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


class HangUp(Exception):  # noqa: N818 - what the server does, not an error of its own
    """Break the connection instead of answering."""


class Listener:
    """``with Listener(handle) as listener``: ``handle`` is called for each request, in a thread for each connection."""

    def __init__(self, handle: Callable[[Request], Answer], *, port: int = 0) -> None:
        self._handle = handle
        self.port = port
        self._socket: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._mutex = threading.Lock()
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Begin to accept connections; without a port that was asked for, on one that is free."""
        self._socket = socket.create_server(("127.0.0.1", self.port), backlog=256)
        self.port = self._socket.getsockname()[1]
        self._accepting.start()
        return self

    def stop(self) -> None:
        """Close every connection and wait for the threads that are still at work."""
        if self._socket is None:
            return
        # A thread in accept() is not woken by close(), but by shutdown().
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._accepting.join()
        with self._mutex:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            threads = list(self._threads)
        for thread in threads:
            thread.join(timeout=30)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _accept(self) -> None:
        assert self._socket is not None
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            with self._mutex:
                self._open.add(connection)
                self._threads.add(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as reader, contextlib.suppress(OSError):
                while (request := _read(reader)) is not None:
                    try:
                        answer = self._handle(request)
                    except HangUp:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        return
                    connection.sendall(_written(answer, head=request.method == "HEAD"))
        finally:
            with self._mutex:
                self._open.discard(connection)
                self._threads.discard(threading.current_thread())


def _read(reader: BufferedReader) -> Request | None:
    """The next request of a connection; None when the client has gone."""
    line = reader.readline(65_536)
    if not line.strip():
        return None
    method, target, _ = line.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (line := reader.readline(65_536)) not in {b"\r\n", b"\n", b""}:
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    length = int(headers.get("content-length", 0))
    body = reader.read(length) if length else b""
    return Request(method, target, headers, body) if len(body) == length else None


def _written(answer: Answer, *, head: bool) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {_PHRASES.get(answer.status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    if answer.status not in _BODILESS:
        if answer.content_type:
            lines.append(f"Content-Type: {answer.content_type}")
        lines.append(f"Content-Length: {len(answer.body)}")
    text = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return text if head or answer.status in _BODILESS else text + answer.body
