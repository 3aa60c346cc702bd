"""The doorbell: how a worker is told that there is something to do.

Responsible for: the Protocol that whoever publishes holds, and its one error. ``worker.app`` rings for real.
Must not know: Celery, SQL. A ring that is lost costs time and nothing else: the ledger is the truth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.messages import Queue


class BrokerAwayError(Exception):
    """The broker cannot be reached. ``unsent`` are the ids that were not certainly sent; some of them may have been.

    The text is one line and holds no password.
    """

    def __init__(self, text: str, unsent: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.unsent = tuple(unsent)


class Doorbell(Protocol):
    """Publishes messages that carry an id and nothing that matters. Both methods may raise BrokerAwayError."""

    def ring(self, queue: Queue, ids: Sequence[str]) -> None:
        """Send one message per id, in this order."""
        ...

    def depth(self, queue: Queue) -> int:
        """Messages that wait in the queue; those that a worker has already taken are not counted."""
        ...
