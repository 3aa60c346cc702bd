"""A proxy that makes a catalog answer later: every request waits a while, and every request is counted.

Responsible for: passing bytes on, each burst of a client's bytes ``delay`` seconds after it came, answers at once; and
the count of requests by what they ask. One thread, and nothing of a request is parsed but its first line, so that it
is not what is measured.
Must not know: which catalog, who asks.

``python -m benchmarks.proxy PORT`` stands before 127.0.0.1:PORT. It prints its own port, then obeys lines on standard
input: ``delay SECONDS``, ``count`` (prints the counts as JSON), ``reset``. It ends with its input.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

_CHUNK: Final = 1 << 18
_LISTEN: Final = 256
_METHODS: Final = (b"GET ", b"POST ", b"DELETE ", b"HEAD ", b"PUT ", b"PATCH ")
_READ: Final = select.EPOLLIN
_WRITE: Final = select.EPOLLIN | select.EPOLLOUT


def kind_of(method: str, target: str) -> str:
    """What a request asks for: the name of the catalog's operation."""
    words = target.partition("?")[0].strip("/").split("/")[1:]
    match words:
        case ["config"]:
            return "config"
        case ["oauth", *_]:
            return "token"
        case ["tables", "rename"]:
            return "rename"
        case ["namespaces", _, "register"]:
            return "register"
        case ["namespaces", _, "tables", _]:
            return {"GET": "load", "DELETE": "drop"}.get(method, method)
        case ["namespaces", _, "tables"]:
            return "list"
        case ["namespaces", *_]:
            return "namespace"
        case _:
            return "other"


@dataclass(eq=False)
class _End:
    """One end of a connection that passes through."""

    socket: socket.socket
    is_client: bool
    peer: _End | None = None
    unsent: bytes = b""


class Proxy:
    """Listens on a free port of the loopback interface."""

    def __init__(self, upstream: int) -> None:
        self._upstream = ("127.0.0.1", upstream)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_LISTEN)
        self._epoll = select.epoll()
        self._epoll.register(self._listener, _READ)
        self._epoll.register(sys.stdin, _READ)
        self._ends: dict[int, _End] = {}
        self._later: deque[tuple[float, _End, bytes]] = deque()
        self.delay = 0.0
        self.counts: Counter[str] = Counter()
        self.port: int = self._listener.getsockname()[1]

    def run(self) -> None:
        """Pass on until standard input ends."""
        while True:
            for number, event in self._epoll.poll(self._until_due()):
                if number == sys.stdin.fileno():
                    if not self._obey():
                        return
                elif number == self._listener.fileno():
                    self._accept()
                elif number in self._ends:
                    self._serve(self._ends[number], event)
            self._pass_due()

    def _until_due(self) -> float:
        return max(0.0, self._later[0][0] - time.monotonic()) if self._later else -1

    def _pass_due(self) -> None:
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            _, to, content = self._later.popleft()
            self._send(to, content)

    def _obey(self) -> bool:
        lines = os.read(sys.stdin.fileno(), 4096).decode().splitlines()
        for line in lines:
            word, _, value = line.partition(" ")
            if word == "delay":
                self.delay = float(value)
            elif word == "reset":
                self.counts.clear()
            print(json.dumps(self.counts), flush=True)
        return bool(lines)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._upstream)
        one, other = _End(client, is_client=True), _End(server, is_client=False)
        one.peer, other.peer = other, one
        for end in (one, other):
            end.socket.settimeout(0)
            end.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ends[end.socket.fileno()] = end
            self._epoll.register(end.socket, _READ)

    def _serve(self, end: _End, event: int) -> None:
        if event & select.EPOLLOUT:
            self._send(end, b"")
        if not event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            return
        try:
            content = end.socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        if not content:
            self._close(end)
        elif end.peer is not None and end.is_client:
            self._count(content)
            if self.delay:
                self._later.append((time.monotonic() + self.delay, end.peer, content))
            else:
                self._send(end.peer, content)
        elif end.peer is not None:
            self._send(end.peer, content)

    def _count(self, content: bytes) -> None:
        if content.startswith(_METHODS):
            method, target, _ = content.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
            self.counts[kind_of(method, target)] += 1

    def _send(self, end: _End, content: bytes) -> None:
        if end.socket.fileno() < 0:
            return
        waited = bool(end.unsent)
        content = end.unsent + content if waited else content
        try:
            sent = end.socket.send(content)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(end)
            return
        end.unsent = content[sent:]
        if waited or end.unsent:
            self._epoll.modify(end.socket, _WRITE if end.unsent else _READ)

    def _close(self, end: _End) -> None:
        for one in (end, end.peer):
            if one is not None and one.socket.fileno() >= 0:
                self._ends.pop(one.socket.fileno(), None)
                self._epoll.unregister(one.socket)
                one.socket.close()


if __name__ == "__main__":
    proxy = Proxy(int(sys.argv[1]))
    print(proxy.port, flush=True)
    proxy.run()
