"""A doorbell that remembers who it was rung for, and fails when it is told to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from worker.doorbell import BrokerAwayError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.messages import Queue


@dataclass
class DoorbellDouble:
    """Messages that were sent, in order. ``waiting`` are those that no worker has taken yet."""

    sent: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    breaks_after: int | None = None
    """How many more messages it sends before the broker is away."""

    def ring(self, queue: Queue, ids: Sequence[str]) -> None:
        """See ``worker.doorbell``."""
        for position, name in enumerate(ids):
            if self.breaks_after is not None and position >= self.breaks_after:
                raise BrokerAwayError("the broker is away", ids[position:])
            self.sent.append(name)
            self.waiting.append(name)

    def depth(self, queue: Queue) -> int:
        """See ``worker.doorbell``."""
        return len(self.waiting)

    def take_all(self) -> list[str]:
        """Workers take every waiting message, or the broker loses them."""
        taken, self.waiting = self.waiting, []
        return taken
