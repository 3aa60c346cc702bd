"""Workers that are alive, as the control plane knows them.

Responsible for: ``reroot.workers``, written every round by each worker's sweeper, read by whoever asks whether anybody
listens.
Must not know: what a worker does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from worker.controlplane.connection import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.controlplane.connection import Connection
    from worker.messages import Queue

ALIVE_SECONDS: Final = 60
"""A worker that was seen within this time, by the database's clock, counts as alive: four rounds of its sweeper."""

FORGET_SECONDS: Final = 86_400
"""After this a worker that was never seen again is forgotten: autoscaled workers have a new name each time."""


def note_alive(connection: Connection, worker: str, queues: Sequence[Queue], concurrency: int) -> None:
    """Note that ``worker`` is there now. Raises ControlPlaneError."""
    with translated():
        connection.execute(
            "INSERT INTO reroot.workers (worker, queues, concurrency) VALUES (%s, %s::text[], %s)"
            " ON CONFLICT (worker) DO UPDATE"
            " SET queues = excluded.queues, concurrency = excluded.concurrency, seen_at = now()",
            (worker, [queue.value for queue in queues], concurrency),
        )


def note_gone(connection: Connection, worker: str) -> None:
    """Note that ``worker`` has ended, and forget those that ended without a word long ago."""
    with translated():
        connection.execute(
            "DELETE FROM reroot.workers WHERE worker = %s OR seen_at < now() - make_interval(secs => %s)",
            (worker, FORGET_SECONDS),
        )


def alive(connection: Connection, queue: Queue) -> int:
    """How many workers listen on ``queue`` now."""
    with translated():
        row: Any = connection.execute(
            "SELECT count(*) FROM reroot.workers"
            " WHERE %s = ANY (queues) AND seen_at > now() - make_interval(secs => %s)",
            (queue.value, ALIVE_SECONDS),
        ).fetchone()
    count: int = row[0]
    return count
