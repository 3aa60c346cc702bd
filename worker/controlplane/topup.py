"""Topping up a queue: what is due in the ledger and has no message gets one.

Responsible for: which rows are published, in which order, and that a row is marked in the ledger before it is sent.
The sweeper and the producer both publish through ``top_up``, and nobody else publishes at all.
Must not know: Celery (a ``Doorbell`` is handed in), when it is called.

Due is what is past its ``not_before``: planned or waiting, flipped and past its grace, or claimed by an attempt that
has died, so that its backend does not hold the dataset's lock any more. Urgent is an open rename, whose table readers
miss, and a withdrawal in which an attempt died. An urgent row is marked whatever the length of the queue, so that
a process does it before the job of its own message, and it is sent again after seconds. A share of the window is for
flipped datasets: a backlog of planned ones must not keep the old pointers.

Any other row that was published and never started is sent again only after a while *and* when the queue is empty: a
long queue must not grow by copies. For a warehouse that is away one row at a time is sent, as the probe, so that ten
thousand waiting jobs burden neither the warehouse nor the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from worker.controlplane.connection import translated
from worker.controlplane.living import LIVING
from worker.doorbell import BrokerAwayError
from worker.messages import Queue

if TYPE_CHECKING:
    from worker.controlplane.connection import Connection
    from worker.doorbell import Doorbell

DUE_CHANNEL: Final = "reroot_due"
"""NOTIFY on this channel makes a sweeper look at once."""

_ABANDONED: Final = sql.SQL(
    "(attempt_started_at IS NULL OR attempt_started_at < now() - make_interval(secs => %(longest_attempt)s)"
    f" OR NOT {LIVING})",
)
"""No attempt is at it: none has started, or the one that did is dead."""

_AGAIN_SECONDS: Final = 5
"""An urgent row that nobody has started by then is sent again."""

_PROBE_SECONDS: Final = 15
"""A probe that has not been answered by then is lost or waits: another row is sent as well."""

_URGENT: Final = sql.SQL(
    "dataset_id IN (SELECT o.dataset_id FROM reroot.pointers o WHERE o.closed_at IS NULL"
    " AND (o.action = 'rename' OR o.action = 'withdraw' AND attempt_started_at IS NOT NULL))"
    f" AND (published_at IS NULL OR published_at < now() - interval '{_AGAIN_SECONDS} seconds')",
)
_FLIPPED: Final = sql.SQL("state = 'flipped' AND published_at IS NULL")
_UNPUBLISHED: Final = sql.SQL("published_at IS NULL")
_LOST: Final = sql.SQL("published_at < now() - make_interval(secs => %(republish_after)s)")

_SENDABLE: Final = sql.SQL("state IN ('queued', 'flipped') AND not_before <= now() AND {condition} AND {abandoned}")

_ASKABLE: Final = sql.SQL(
    "(warehouse IS NULL"
    " OR NOT EXISTS (SELECT FROM reroot.warehouses w WHERE w.warehouse = moves.warehouse AND w.down_until IS NOT NULL)"
    " OR dataset_id IN (SELECT DISTINCT ON (p.warehouse) p.dataset_id"
    "  FROM reroot.moves p JOIN reroot.warehouses w ON w.warehouse = p.warehouse AND w.down_until <= now()"
    "  WHERE {sendable} AND NOT EXISTS (SELECT FROM reroot.moves sent WHERE sent.warehouse = p.warehouse"
    f"   AND sent.published_at > now() - interval '{_PROBE_SECONDS} seconds')"
    "  ORDER BY p.warehouse, p.not_before, p.dataset_id))",
)
"""Its warehouse answers, or it is the one that asks whether it does again: the first of those that can be sent now."""

_MARK: Final = sql.SQL(
    "UPDATE reroot.moves m SET published_at = clock_timestamp(), urgent = m.urgent OR %(urgent)s,"
    " attempt_started_at = CASE"
    " WHEN attempt_started_at >= now() - make_interval(secs => %(longest_attempt)s) THEN attempt_started_at END"
    " FROM (SELECT dataset_id FROM reroot.moves WHERE {sendable} AND {askable}"
    "       ORDER BY not_before, dataset_id LIMIT %(room)s FOR UPDATE SKIP LOCKED) due"
    " WHERE m.dataset_id = due.dataset_id"
    " RETURNING m.dataset_id, m.not_before, m.published_at",
)


def top_up(
    connection: Connection,
    queue: Queue,
    doorbell: Doorbell,
    *,
    window: int,
    republish_after: float,
    longest_attempt: float,
) -> int:
    """Publish what is due in ``queue``, up to ``window`` waiting messages and what is urgent; the number that was sent.

    ``connection`` is in autocommit mode: the mark is committed before anything is sent, so that two who do this at
    once never send one row twice. ``republish_after`` and ``longest_attempt``, after which no attempt lives, are in
    seconds. Raises BrokerAwayError (the unsent rows are unmarked again) and ControlPlaneError.
    """
    if queue is not Queue.MOVES:  # the other queues have no ledger yet, so nothing of theirs can be due
        return 0
    waiting = doorbell.depth(queue)
    marking = _Marking(connection, republish_after, longest_attempt)
    marked = marking.mark(_URGENT, None, urgent=True)
    room = max(0, window - waiting)
    due = marking.mark(_FLIPPED, (room + 1) // 2)
    due += marking.mark(_UNPUBLISHED, room - len(due))
    marked += sorted(due, key=_oldest)
    if waiting == 0:
        marked += marking.mark(_LOST, room - len(due))
    if marked:
        _send(connection, queue, doorbell, marked)
    return len(marked)


def wake(connection: Connection) -> None:
    """Make the sweepers look now instead of at their next round; sent when the surrounding transaction commits."""
    with translated():
        connection.execute("SELECT pg_notify(%s, '')", (DUE_CHANNEL,))


@dataclass(frozen=True, slots=True)
class Work:
    """What there is to do: something now, running attempts included, and in how many seconds the next row is due."""

    now: bool = False
    due_in: float | None = None
    """None: none waits."""


def work(connection: Connection) -> Work:
    """What there is to do in all queues. Raises ControlPlaneError."""
    with translated():
        row: Any = connection.execute(
            "SELECT EXISTS (SELECT FROM reroot.moves WHERE state IN ('queued', 'flipped') AND not_before <= now()),"
            " (SELECT extract(epoch FROM min(not_before) - now())::float8 FROM reroot.moves"
            "  WHERE state IN ('queued', 'flipped') AND not_before > now())",
        ).fetchone()
    return Work(*row)


def _oldest(row: Any) -> Any:
    return row[1], row[0]


@dataclass(frozen=True, slots=True)
class _Marking:
    connection: Connection
    republish_after: float
    longest_attempt: float

    def mark(self, condition: sql.SQL, room: int | None, *, urgent: bool = False) -> list[Any]:
        """Mark rows as published and commit; the oldest come first. ``room`` None: all of them."""
        if room == 0:
            return []
        sendable = _SENDABLE.format(condition=condition, abandoned=_ABANDONED)
        # What is urgent is asked for in a warehouse that is away, too: it is little, and readers miss it.
        askable = sql.SQL("true") if urgent else _ASKABLE.format(sendable=sendable)
        statement = _MARK.format(sendable=sendable, askable=askable)
        parameters = {
            "room": room,
            "urgent": urgent,
            "republish_after": self.republish_after,
            "longest_attempt": self.longest_attempt,
        }
        with translated():
            rows = self.connection.execute(statement, parameters).fetchall()
        return sorted(rows, key=_oldest)


def _send(connection: Connection, queue: Queue, doorbell: Doorbell, marked: list[Any]) -> None:
    try:
        doorbell.ring(queue, [row[0] for row in marked])
    except BrokerAwayError as error:
        _unmark(connection, marked, frozenset(error.unsent))
        raise


def _unmark(connection: Connection, marked: list[Any], unsent: frozenset[str]) -> None:
    """Take the mark back, only where it is still ours: a message may have been sent, and an attempt begun."""
    ours = [(row[0], row[2]) for row in marked if row[0] in unsent]
    with translated():
        connection.execute(
            "UPDATE reroot.moves m SET published_at = NULL"
            " FROM unnest(%s::text[], %s::timestamptz[]) AS ours(dataset_id, published_at)"
            " WHERE m.dataset_id = ours.dataset_id AND m.published_at = ours.published_at",
            ([name for name, _ in ours], [at for _, at in ours]),
        )
