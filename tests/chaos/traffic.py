"""Readers and writers as processes of their own: what they are told, how they begin and end, what they tell.

Responsible for: starting one with its orders, ending it, reading what it saw; and in such a process itself its
connections, which break and are opened again.
Must not know: what it reads or writes.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import psycopg
from pyiceberg.catalog.rest import RestCatalog

from demo.processes import Process, ServiceError
from tests.support.worker_process import ROOT, plain_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

RESOLVE: Final = b"SELECT reroot.table_identifier(%s::uuid)"
_AWAY_PAUSE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Orders:
    """What such a process is told. ``uuids``: dataset and table uuid; ``pause`` in seconds, between two things."""

    database: str
    catalog: str
    warehouse: str
    seed: str
    pause: float
    uuids: dict[str, str]
    tells: str
    """The file in which it says what it saw, a JSON object a line."""
    locking: bool = True


class Bystander:
    """One such process, seen by who starts it. As a context it runs, and has ended at the end."""

    def __init__(self, folder: Path, name: str, module: str, orders: Orders) -> None:
        self.name = name
        self._folder = folder
        self._module = module
        self._orders = orders
        self._process: Process | None = None

    def __enter__(self) -> Self:
        told = self._folder / f"{self.name}.orders"
        told.write_text(json.dumps(asdict(self._orders)), encoding="utf-8")
        self._process = Process(
            [sys.executable, "-m", self._module, str(told)],
            log=self._folder / f"{self.name}.log", environment=plain_environment(), folder=ROOT,
        )  # fmt: skip
        return self

    def check(self) -> None:
        """Raises ServiceError when it has ended by itself."""
        if self._process is not None and not self._process.alive():
            raise ServiceError(f"{self.name} has ended:\n{self._process.tail()}")

    def end(self) -> None:
        """Let it finish what it is at. Raises ServiceError when it had ended, or ends, otherwise than in order."""
        if self._process is None:
            return
        process, self._process = self._process, None
        code = process.stop(seconds=60)
        if code != 0:
            raise ServiceError(f"{self.name} ended with {code}:\n{process.tail()}")

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.stop(seconds=60)
            self._process = None

    def told(self) -> Iterator[dict[str, Any]]:
        """What it said so far, line by line."""
        where = Path(self._orders.tells)
        if where.exists():
            for line in where.read_text(encoding="utf-8").splitlines():
                yield json.loads(line)


@dataclass
class Ways:
    """Inside such a process: its ways to the control plane and to the catalog, chance, and when it is over."""

    orders: Orders
    counts: Counter[str] = field(default_factory=Counter)
    over: bool = False
    _connection: psycopg.Connection[Any] | None = None

    def __post_init__(self) -> None:
        signal.signal(signal.SIGTERM, self._end)
        self.chance = random.Random(self.orders.seed)  # noqa: S311 - chance that a seed repeats
        # Without an authentication pyiceberg would send the header "Bearer None".
        self.catalog = RestCatalog(
            self.orders.warehouse,
            uri=self.orders.catalog,
            warehouse=self.orders.warehouse,
            auth={"type": "noop"},  # type: ignore[arg-type]
        )
        self._tells = Path(self.orders.tells).open("a", encoding="utf-8")  # noqa: SIM115 - open as long as the process

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self.over = True

    def tell(self, **what: object) -> None:
        """One line, there at once even if this process is killed next."""
        self._tells.write(json.dumps(what) + "\n")
        self._tells.flush()

    def close(self) -> None:
        """Tell the counts, and let go."""
        self.tell(kind="counts", counts=dict(self.counts))
        self._tells.close()
        if self._connection is not None:
            self._connection.close()

    def rest(self) -> None:
        """The pause between two things."""
        time.sleep(self.chance.uniform(0.5, 1.5) * self.orders.pause)

    def connection(self) -> psycopg.Connection[Any]:
        """The connection to the control plane. Raises psycopg.Error while that is away."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.orders.database, autocommit=True, connect_timeout=5)
        return self._connection

    def broken(self) -> None:
        """Let a connection go that failed, and wait a moment."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        time.sleep(_AWAY_PAUSE)

    def resolve(self, dataset: str) -> str:
        """Where the resolver says that the dataset's table is. Raises psycopg.Error."""
        row = self.connection().execute(RESOLVE, (dataset,)).fetchone()
        assert row is not None
        return str(row[0])


def ordered() -> Ways:
    """The ways of this process, by the orders that it was started with."""
    return Ways(Orders(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
