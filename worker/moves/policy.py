"""The numbers that an attempt is held to.

Responsible for: limits, each with its unit. Must not know: where they come from (``worker.settings``).
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.outcome import MAX_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.moves.ports import Strategy


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits of one attempt; durations are in seconds."""

    grace_seconds: float = 900
    """How long the other pointer stays after the flip: longer than any reader keeps a resolved name."""
    deadline_seconds: float = 60
    """After this no request that changes something is begun."""
    max_attempts: int = MAX_ATTEMPTS
    busy_limit: int = 3
    """Tries in a row that find the lock held before an attempt queues for it (a try never wins against a queue)."""
    queue_for_seconds: float = 3
    busy_after_seconds: float = 5
    second_looks: int = 5
    """How often the source may move under one attempt."""
    away_seconds: float = 15
    """How long a warehouse that does not answer is left alone before one job probes it again."""
    open_rename_seconds: tuple[float, float] = (1, 10)
    """How long at least, and at most, an attempt waits that could not settle a rename."""
    strategy: Strategy | None = None
    """None: found out per warehouse."""
    window_seconds: float = 45
    """A few seconds above the requests of the window: how long the flip's rows may be held in silence."""
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random
