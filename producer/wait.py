"""Waiting for moves: until each selected dataset is flipped, done or parked.

Responsible for: the loop and its figures. It reads the ledger and nothing else, so that leaving it changes nothing.
Must not know: the screen, SQL (the question is handed in).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from worker.moves.machine import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

POLL_SECONDS: Final = 1.0
SLOW_POLL_SECONDS: Final = 5.0
MANY: Final = 10_000
"""Above so many open datasets the ledger is asked less often: each question names all of them."""


@dataclass(slots=True)
class Progress:
    """How far it is. ``rate`` is in datasets a second, ``remaining`` in seconds; None while nothing is known."""

    total: int
    counts: Counter[State] = field(default_factory=Counter)
    parked: list[str] = field(default_factory=list)
    cancelled: int = 0
    elapsed: float = 0.0

    @property
    def settled(self) -> int:
        """Datasets that this wait is over for."""
        return self.counts.total() + self.cancelled

    @property
    def rate(self) -> float | None:
        """Datasets a second since the wait began."""
        return self.settled / self.elapsed if self.settled and self.elapsed > 0 else None

    @property
    def remaining(self) -> float | None:
        """Seconds until the last one, if it goes on like this."""
        return (self.total - self.settled) / self.rate if self.rate else None


def wait(
    dataset_ids: Sequence[str],
    ask: Callable[[list[str]], dict[str, State | None]],
    *,
    clock: Callable[[], float],
    pause: Callable[[float], None],
) -> Iterator[Progress]:
    """Ask until none is queued any more; yields after every answer.

    ``ask`` gives the state of those that are no longer queued, None for what was cancelled. Whatever it raises
    ends the wait.
    """
    waiting = set(dataset_ids)
    progress = Progress(total=len(waiting))
    began = clock()
    while True:
        for dataset_id, state in ask(sorted(waiting)).items():
            waiting.discard(dataset_id)
            if state is None:
                progress.cancelled += 1
                continue
            progress.counts[state] += 1
            if state is State.PARKED:
                progress.parked.append(dataset_id)
        progress.elapsed = clock() - began
        yield progress
        if not waiting:
            return
        pause(SLOW_POLL_SECONDS if len(waiting) > MANY else POLL_SECONDS)
