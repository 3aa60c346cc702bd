"""Topping up a queue: what is due in the ledger and has no message gets one.

Responsible for: which rows are published, in which order, and that a row is marked in the ledger before it is sent.
The sweeper and the producer both publish through ``top_up``, and nobody else publishes at all.
Must not know: Celery (a ``Doorbell`` is handed in), when it is called.

Due is what is planned or waiting and past its ``not_before``, what is flipped and past its grace, and what an attempt
left behind when it died: claimed, while nobody holds the dataset's lock. An open rename or withdrawal in the journal is
due at once and goes first. A row that was published and never started is sent again only after a while *and* when the
queue is empty: a long queue is no reason to make it longer. Of a warehouse that is away one row at a time is sent, as
the probe, so that ten thousand waiting jobs beat neither on it nor on the ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from worker.controlplane.connection import translated
from worker.doorbell import BrokerAwayError
from worker.messages import Queue

if TYPE_CHECKING:
    from worker.controlplane.connection import Connection
    from worker.doorbell import Doorbell

DUE_CHANNEL: Final = "reroot_due"
"""NOTIFY on this channel makes a sweeper look at once."""

_HELD: Final = sql.SQL(
    # The one-bigint key space shows its key in two halves; a hash below zero fills the upper one with ones.
    "(SELECT array_agg((classid::bigint << 32) | objid::bigint) FROM pg_locks"
    " WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))",
)
"""Keys of every dataset lock that is held now: one look for all rows."""

_ABANDONED: Final = sql.SQL(
    "(attempt_started_at IS NULL OR attempt_started_at < now() - make_interval(secs => %(longest_attempt)s)"
    " OR hashtext(dataset_id)::bigint <> ALL (coalesce({held}, '{{}}'::bigint[])))",
).format(held=_HELD)
"""No attempt is at it: none has started, or the one that did is dead. A lock that is held longer than any attempt lasts
is a writer's: the next attempt queues for it."""

_URGENT: Final = sql.SQL(
    "dataset_id IN (SELECT p.dataset_id FROM reroot.pointers p WHERE p.closed_at IS NULL"
    " AND (p.action = 'rename' OR p.action = 'withdraw' AND attempt_started_at IS NOT NULL))"
    " AND published_at IS NULL",
)
"""Readers miss a table, or an attempt died in a withdrawal. One that ended in it has said how long to wait."""

_UNPUBLISHED: Final = sql.SQL("not_before <= now() AND published_at IS NULL")
_LOST: Final = sql.SQL("not_before <= now() AND published_at < now() - make_interval(secs => %(republish_after)s)")

_ASKABLE: Final = sql.SQL(
    "(warehouse IS NULL"
    " OR NOT EXISTS (SELECT FROM reroot.warehouses w WHERE w.warehouse = moves.warehouse AND w.down_until IS NOT NULL)"
    " OR dataset_id IN (SELECT DISTINCT ON (p.warehouse) p.dataset_id"
    "  FROM reroot.moves p JOIN reroot.warehouses w ON w.warehouse = p.warehouse AND w.down_until <= now()"
    "  WHERE p.state IN ('queued', 'flipped') AND p.not_before <= now() AND {abandoned}"
    "  ORDER BY p.warehouse, p.not_before, p.dataset_id))",
).format(abandoned=_ABANDONED)
"""Its warehouse answers, or it is the one that asks whether it does again: the others stay where they are."""

_CLAIM: Final = sql.SQL(
    "UPDATE reroot.moves m SET published_at = clock_timestamp(), attempt_started_at = CASE"
    " WHEN attempt_started_at >= now() - make_interval(secs => %(longest_attempt)s) THEN attempt_started_at END"
    " FROM (SELECT dataset_id FROM reroot.moves"
    "       WHERE state IN ('queued', 'flipped') AND {condition} AND {abandoned} AND {askable}"
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
    """Publish what is due in ``queue``, up to ``window`` waiting messages; the number that was sent.

    ``connection`` is in autocommit mode: the mark is committed before anything is sent, so that two who do this at
    once never send one row twice. ``republish_after`` and ``longest_attempt``, after which no attempt lives, are in
    seconds. Raises BrokerAwayError (the unsent rows are unmarked again) and ControlPlaneError.
    """
    if queue is not Queue.MOVES:  # the other queues have no ledger yet, so nothing of theirs can be due
        return 0
    waiting = doorbell.depth(queue)
    room = window - waiting
    if room <= 0:
        return 0
    conditions = [_URGENT, _UNPUBLISHED] + ([_LOST] if waiting == 0 else [])
    marked = _mark(connection, conditions, room, republish_after, longest_attempt)
    if marked:
        _send(connection, queue, doorbell, marked)
    return len(marked)


def wake(connection: Connection) -> None:
    """Make the sweepers look now instead of at their next round; sent when the surrounding transaction commits."""
    with translated():
        connection.execute("SELECT pg_notify(%s, '')", (DUE_CHANNEL,))


def seconds_until_due(connection: Connection) -> float | None:
    """Seconds until the next waiting row is due; None where none waits."""
    with translated():
        row: Any = connection.execute(
            "SELECT extract(epoch FROM min(not_before) - now())::float8 FROM reroot.moves"
            " WHERE state IN ('queued', 'flipped') AND not_before > now()",
        ).fetchone()
    seconds: float | None = row[0]
    return seconds


def _mark(
    connection: Connection, conditions: list[sql.SQL], room: int, republish_after: float, longest_attempt: float
) -> list[Any]:
    """Mark rows as published and commit; what meets an earlier condition comes first, then the oldest."""
    marked: list[Any] = []
    with translated():
        for condition in conditions:
            if room > len(marked):
                statement = _CLAIM.format(condition=condition, abandoned=_ABANDONED, askable=_ASKABLE)
                parameters = {
                    "room": room - len(marked),
                    "republish_after": republish_after,
                    "longest_attempt": longest_attempt,
                }
                rows = connection.execute(statement, parameters).fetchall()
                marked += sorted(rows, key=lambda row: (row[1], row[0]))
    return marked


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
