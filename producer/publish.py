"""From verdicts to jobs: ledger rows in bulk, then as many messages as the queue's window takes.

Responsible for: the order (commit, then publish) and memory that stays flat.
Must not know: Celery. The ledger is the truth, so that a message that is not sent costs time and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from producer.plan import Planned
from worker.controlplane.enqueue import PlannedRow, enqueue
from worker.controlplane.topup import top_up, wake
from worker.messages import Queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from producer.plan import Judged
    from worker.controlplane.connection import Connection
    from worker.doorbell import Doorbell

CHUNK: Final = 5000
"""Ledger rows that one transaction writes."""


@dataclass(frozen=True, slots=True)
class Window:
    """Messages that may wait in the broker; seconds until a lost one is sent again, and that an attempt may last."""

    messages: int
    republish_after: float
    longest_attempt: float


def write_ledger(connection: Connection, verdicts: Iterable[Judged]) -> int:
    """Write every planned dataset into the ledger, a transaction per chunk; how many are new there.

    What is written stays written when a later chunk fails: planning again goes on from there. Raises ControlPlaneError.
    """
    rows = (_row(verdict) for verdict in verdicts if isinstance(verdict, Planned))
    return sum(enqueue(connection, chunk) for chunk in _chunks(rows))


def ring(connection: Connection, doorbell: Doorbell, window: Window | None) -> int:
    """Publish what is due up to the window and wake the sweepers for the rest; how many messages were sent.

    Without a window the sweepers publish all of it. Raises BrokerAwayError (they will publish) and ControlPlaneError.
    """
    try:
        if window is None:
            return 0
        return top_up(
            connection,
            Queue.MOVES,
            doorbell,
            window=window.messages,
            republish_after=window.republish_after,
            longest_attempt=window.longest_attempt,
        )
    finally:
        wake(connection)


def _chunks(rows: Iterator[PlannedRow]) -> Iterator[list[PlannedRow]]:
    while chunk := list(islice(rows, CHUNK)):
        yield chunk


def _row(verdict: Planned) -> PlannedRow:
    return PlannedRow(
        dataset_id=verdict.dataset_id,
        workspace_id=verdict.workspace_id,
        source_identifier=str(verdict.source),
        table_name=verdict.source.name,
        target_namespace=verdict.target_namespace,
        claim=verdict.claim,
    )
