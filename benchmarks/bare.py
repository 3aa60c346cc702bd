"""The floor: a loop that sends a move's requests, reads what its soak reads, and does nothing else.

Responsible for: as many processes as the worker has, the same HTTP client, the same requests in the same order: GET
old, POST register, GET new, GET old for every table; then GET new, POST rename, GET quarantined, DELETE for every
table. No lock, no ledger, no broker, nothing decoded.
Must not know: how a move is really done.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import urllib3

from demo.processes import ServiceError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from multiprocessing.sharedctypes import Synchronized

QUARANTINE: Final = "bare_withdrawn"
_JSON: Final = {"Content-Type": "application/json"}
_HEADERS: Final = {"User-Agent": "reroot", "X-Iceberg-Access-Delegation": "vended-credentials"}


@dataclass(frozen=True, slots=True)
class Errand:
    """One table: its names, and the files that a soak of it reads."""

    old: tuple[str, str]
    new: tuple[str, str]
    metadata_location: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Floor:
    """What the loop came to."""

    per_second: float
    cpu_ms: float
    """Processor time per table, of the loop's own processes."""


class _Client:
    """One keep-alive connection, as the worker's own client has it."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"
        self._pool = urllib3.PoolManager(num_pools=4, maxsize=1, timeout=30)

    def send(self, method: str, target: str, body: object = None) -> bytes:
        content = None if body is None else json.dumps(body).encode()
        response = self._pool.connection_from_url(self._address).urlopen(
            method,
            f"/v1{target}",
            body=content,
            headers=_HEADERS if content is None else {**_HEADERS, **_JSON},
            redirect=False,
            retries=False,
        )
        data: bytes = response.data
        if response.status not in {200, 204}:
            raise RuntimeError(f"{method} {target}: {response.status} {data[:300]!r}")
        return data

    def place(self, errand: Errand) -> None:
        """What a worker asks for on the way to ``flipped``."""
        namespace, name = errand.new
        self.send("GET", _table(*errand.old))
        body = {"name": name, "metadata-location": errand.metadata_location, "overwrite": False}
        self.send("POST", f"/namespaces/{_levels(namespace)}/register", body)
        self.send("GET", _table(*errand.new))
        for path in errand.files:
            with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - the cheapest way to read a file
                stream.read()
        self.send("GET", _table(*errand.old))

    def retire(self, errand: Errand) -> None:
        """What a worker asks for on the way to ``done``."""
        shelter = (QUARANTINE, errand.old[1])
        self.send("GET", _table(*errand.new))
        self.send("POST", "/tables/rename", {"source": _named(*errand.old), "destination": _named(*shelter)})
        self.send("GET", _table(*shelter))
        self.send("DELETE", _table(*shelter) + "?purgeRequested=false")


def run(port: int, errands: Sequence[Errand], processes: int) -> Floor:
    """Run the errands with as many processes; tables per second from the start of the first to the end of the last."""
    context = multiprocessing.get_context("spawn")
    placed, retired = context.Value("i", 0), context.Value("i", 0)
    start = context.Barrier(processes + 1)
    crew: list[tuple[SpawnProcess, Connection]] = []
    for _ in range(processes):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_loop, args=(port, list(errands), placed, retired, start, there), daemon=True)
        process.start()
        there.close()  # so that a loop that dies is an end of file, not silence
        crew.append((process, here))
    start.wait(120)
    begun = time.monotonic()
    try:
        spent = [here.recv() for _, here in crew]
    except EOFError:
        raise ServiceError("a bare loop has ended with an error, see above") from None
    seconds = time.monotonic() - begun
    for process, _ in crew:
        process.join(30)
    return Floor(len(errands) / seconds, sum(spent) / len(errands) * 1000)


def prepare(port: int, namespaces: Sequence[str]) -> None:
    """Make the namespaces that the errands go to."""
    client = _Client(port)
    for namespace in [*namespaces, QUARANTINE]:
        body = {"namespace": namespace.split("."), "properties": {}}
        try:
            client.send("POST", "/namespaces", body)
        except RuntimeError as error:
            if "AlreadyExists" not in str(error):
                raise


def _loop(
    port: int,
    errands: list[Errand],
    placed: Synchronized[int],
    retired: Synchronized[int],
    start: Any,
    report: Connection,
) -> None:
    client = _Client(port)
    client.send("GET", "/config")
    start.wait(120)
    before = _cpu()
    while (number := _next(placed)) < len(errands):
        client.place(errands[number])
    # Nobody waits here for the last ones to be placed: they are also the last to be retired.
    while (number := _next(retired)) < len(errands):
        client.retire(errands[number])
    report.send(_cpu() - before)


def _next(counter: Synchronized[int]) -> int:
    with counter.get_lock():
        counter.value += 1
        return counter.value - 1


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _levels(namespace: str) -> str:
    return "%1F".join(quote(level, safe="") for level in namespace.split("."))


def _table(namespace: str, name: str) -> str:
    return f"/namespaces/{_levels(namespace)}/tables/{name}"


def _named(namespace: str, name: str) -> dict[str, object]:
    return {"namespace": namespace.split("."), "name": name}
