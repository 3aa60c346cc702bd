"""How the moves stand, for ``reroot status`` and for whoever waits for them.

Responsible for: counts per catalog, what runs and waits and for what, the rate, the last failures, workers alive, and
how tables are moved in each warehouse.
Reads only. Times are ages or distances in seconds by the database's clock, never by the reader's.
Must not know: how it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from worker.controlplane.connection import translated
from worker.controlplane.facts import EVERYTHING, Scope
from worker.controlplane.scoping import ledger_condition
from worker.controlplane.warehouses import known_warehouses
from worker.controlplane.workers import ALIVE_SECONDS
from worker.moves.machine import State
from worker.moves.ports import CREDENTIALS_REFUSED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.controlplane.connection import Connection
    from worker.controlplane.warehouses import Warehouse

RATE_SECONDS: Final = 300
"""The rate is taken over the last five minutes."""

RATE_EVENTS: Final = 100_000
"""Events that the rate looks back over at most: a history of millions is not read for five minutes of it."""

SHOWN: Final = 5
"""How many failures, busy datasets and reasons to wait are listed."""


@dataclass(frozen=True, slots=True)
class CatalogStates:
    """Datasets of the ledger by state, for the catalog that they go to."""

    workspace_id: str
    catalog: str
    queued: int
    flipped: int
    done: int
    parked: int
    reverted: int


@dataclass(frozen=True, slots=True)
class Oldest:
    """The job that has been due and untouched for the longest time."""

    dataset_id: str
    state: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Rate:
    """Datasets that were flipped, and that became done, in the last ``seconds``."""

    seconds: float
    flipped: int
    done: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What jobs wait for, how many do, and when the first is due again (seconds; negative: overdue)."""

    waiting_for: str
    datasets: int
    next_in: float


@dataclass(frozen=True, slots=True)
class BusyDataset:
    """A dataset whose lock or rows somebody else holds whenever a worker comes."""

    dataset_id: str
    seconds: float
    times: int


@dataclass(frozen=True, slots=True)
class WarehouseAway:
    """A warehouse that does not answer; asked again in ``retry_in`` seconds (negative: now)."""

    warehouse: str
    seconds: float
    retry_in: float
    reason: str
    credentials_refused: bool
    """It answers, and refuses ours: a person must act, waiting alone mends nothing."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A parked dataset: what happened, when, and what helps."""

    dataset_id: str
    code: str
    text: str
    remedy: str
    seconds: float


@dataclass(frozen=True, slots=True)
class WorkerAlive:
    """A worker that was seen within the last minute."""

    worker: str
    queues: tuple[str, ...]
    concurrency: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Pairs:
    """Datasets whose table two names hold, or may (``reroot.pairs``)."""

    in_grace: int
    """Flipped."""
    between_attempts: int
    """Queued: registered and not flipped, or on the way back."""
    parked: int
    """Only an operator ends these."""


@dataclass(frozen=True, slots=True)
class Status:
    """Everything that ``reroot status`` says."""

    catalogs: tuple[CatalogStates, ...]
    running: int
    due: int
    """Rows that a worker could take now, running ones included: what the autoscaler counts."""
    in_grace: int
    pairs: Pairs
    oldest: Oldest | None
    rate: Rate
    waiting: tuple[Waiting, ...]
    busy: tuple[BusyDataset, ...]
    warehouses: tuple[Warehouse, ...]
    """All that anything is known of, by name: how tables are moved there, and why so."""
    warehouses_away: tuple[WarehouseAway, ...]
    failures: tuple[Failure, ...]
    workers: tuple[WorkerAlive, ...]


def status(connection: Connection, scope: Scope = EVERYTHING) -> Status:
    """Read everything in scope on one snapshot; warehouses and workers whatever the scope. Raises ControlPlaneError."""
    condition, chosen = ledger_condition(scope)
    shown = {**chosen, "shown": SHOWN}

    def read(statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        return connection.execute(sql.SQL(statement).format(scope=condition), parameters).fetchall()

    with translated(), connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        [(running, due, in_grace)] = read(_COUNTS, chosen)
        [pairs] = read(_PAIRS, chosen)
        [rate] = read(_RATE, chosen)
        oldest = read(_OLDEST, chosen)
        return Status(
            catalogs=tuple(CatalogStates(*row) for row in read(_CATALOGS, chosen)),
            running=running,
            due=due,
            in_grace=in_grace,
            pairs=Pairs(*pairs),
            oldest=Oldest(*oldest[0]) if oldest else None,
            rate=Rate(RATE_SECONDS, *rate),
            waiting=tuple(Waiting(*row) for row in read(_WAITING, shown)),
            busy=tuple(BusyDataset(*row) for row in read(_BUSY, shown)),
            warehouses=tuple(known_warehouses(connection)),
            warehouses_away=tuple(
                WarehouseAway(*row) for row in connection.execute(_AWAY, {"sign": CREDENTIALS_REFUSED})
            ),
            failures=tuple(Failure(*row) for row in read(_FAILURES, shown)),
            workers=tuple(
                WorkerAlive(worker, tuple(queues), concurrency, seconds)
                for worker, queues, concurrency, seconds in connection.execute(_WORKERS, {"alive": ALIVE_SECONDS})
            ),
        )


def parked(connection: Connection, scope: Scope = EVERYTHING, codes: Sequence[str] = ()) -> Iterator[Failure]:
    """Every parked dataset in scope, or those with one of ``codes``; by code, then by id. Raises ControlPlaneError."""
    condition, parameters = ledger_condition(scope)
    with translated():
        rows = connection.execute(
            sql.SQL(_PARKED).format(scope=condition), {**parameters, "codes": list(codes) or None}
        ).fetchall()
    return (Failure(*row) for row in rows)


def settled(connection: Connection, dataset_ids: Sequence[str]) -> dict[str, State | None]:
    """Which of ``dataset_ids`` are no longer queued, where they stand; None: cancelled. Raises ControlPlaneError."""
    with translated():
        rows = connection.execute(
            "SELECT given.id, m.state FROM unnest(%s::text[]) AS given (id)"
            " LEFT JOIN reroot.moves m ON m.dataset_id = given.id WHERE m.state IS DISTINCT FROM 'queued'",
            (list(dataset_ids),),
        ).fetchall()
    return {dataset_id: state and State(state) for dataset_id, state in rows}


_CATALOGS: Final = """
SELECT workspace_id, split_part(target_namespace, '.', 1) AS catalog,
       count(*) FILTER (WHERE state = 'queued'),
       count(*) FILTER (WHERE state = 'flipped'),
       count(*) FILTER (WHERE state = 'done' AND direction = 'out'),
       count(*) FILTER (WHERE state = 'parked'),
       count(*) FILTER (WHERE state = 'done' AND direction = 'back')
FROM reroot.moves
WHERE {scope}
GROUP BY 1, 2
ORDER BY split_part(target_namespace, '.', 1) COLLATE "C", 1
"""

_COUNTS: Final = """
SELECT count(*) FILTER (WHERE attempt_started_at IS NOT NULL),
       (SELECT count(*) FROM reroot.due JOIN reroot.moves USING (dataset_id) WHERE {scope}),
       count(*) FILTER (WHERE state = 'flipped' AND not_before > now())
FROM reroot.moves
WHERE state IN ('queued', 'flipped') AND {scope}
"""

_PAIRS: Final = """
SELECT count(DISTINCT dataset_id) FILTER (WHERE state = 'flipped'),
       count(DISTINCT dataset_id) FILTER (WHERE state = 'queued'),
       count(DISTINCT dataset_id) FILTER (WHERE state = 'parked')
FROM reroot.pairs JOIN reroot.moves USING (dataset_id)
WHERE {scope}
"""

_OLDEST: Final = """
SELECT dataset_id, state, extract(epoch FROM now() - not_before)::float8
FROM reroot.moves
WHERE state IN ('queued', 'flipped') AND not_before <= now() AND attempt_started_at IS NULL AND {scope}
ORDER BY not_before, dataset_id
LIMIT 1
"""

_RATE: Final = f"""
SELECT count(*) FILTER (WHERE transition IN ('b', 'c')), count(*) FILTER (WHERE transition IN ('c', 'd'))
FROM reroot.move_events e
WHERE id > (SELECT coalesce(max(id), 0) - {RATE_EVENTS} FROM reroot.move_events)
  AND at > now() - make_interval(secs => {RATE_SECONDS})
  AND EXISTS (SELECT FROM reroot.moves m WHERE m.dataset_id = e.dataset_id AND {{scope}})
"""

_WAITING: Final = """
SELECT waiting_for, count(*), extract(epoch FROM min(not_before) - now())::float8
FROM reroot.moves
WHERE state IN ('queued', 'flipped') AND waiting_for IS NOT NULL AND {scope}
GROUP BY waiting_for
ORDER BY 2 DESC, 1
LIMIT %(shown)s
"""

_BUSY: Final = """
SELECT dataset_id, extract(epoch FROM now() - busy_since)::float8, busy_count
FROM reroot.moves
WHERE state IN ('queued', 'flipped') AND busy_since IS NOT NULL AND {scope}
ORDER BY busy_since, dataset_id
LIMIT %(shown)s
"""

_AWAY: Final = """
SELECT warehouse, extract(epoch FROM now() - coalesce(down_since, updated_at))::float8,
       extract(epoch FROM down_until - now())::float8, coalesce(down_reason, ''),
       coalesce(starts_with(down_reason, %(sign)s), false)
FROM reroot.warehouses
WHERE down_until IS NOT NULL
ORDER BY down_since, warehouse
"""

_PARKED: Final = """
SELECT dataset_id, park_code, coalesce(park_text, ''), coalesce(park_remedy, ''),
       extract(epoch FROM now() - updated_at)::float8
FROM reroot.moves
WHERE state = 'parked' AND (%(codes)s::text[] IS NULL OR park_code = ANY(%(codes)s)) AND {scope}
ORDER BY park_code, dataset_id
"""

_FAILURES: Final = """
SELECT dataset_id, park_code, coalesce(park_text, ''), coalesce(park_remedy, ''),
       extract(epoch FROM now() - updated_at)::float8
FROM reroot.moves
WHERE state = 'parked' AND {scope}
ORDER BY updated_at DESC, dataset_id
LIMIT %(shown)s
"""

_WORKERS: Final = """
SELECT worker, queues, concurrency, extract(epoch FROM now() - seen_at)::float8
FROM reroot.workers
WHERE seen_at > now() - make_interval(secs => %(alive)s)
ORDER BY worker
"""
