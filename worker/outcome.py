"""How an attempt ends: a value, never whichever exception happened to escape.

Responsible for: the six ends, the codes of a parked job, and the back-off.
Must not know: Celery (``tasks`` maps these to it, in one place), SQL, catalogs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_ATTEMPTS: Final = 10
"""Attempts that a job may cost before it is parked. A kill counts; waiting for a lock or a warehouse does not."""


class ParkCode(StrEnum):
    """Why a job needs a person. The text beside it says more; ``docs/operations.md`` says what to do."""

    NAME_TAKEN = "name_taken"
    SOURCE_REPLACED = "source_replaced"
    DIVERGED = "diverged"
    UNVERIFIED = "unverified"
    TABLE_MISSING = "table_missing"
    TABLE_UNREADABLE = "table_unreadable"
    NAME_HIDDEN = "name_hidden"
    PLACED_ELSEWHERE = "placed_elsewhere"
    SOURCE_MOVING = "source_moving"
    SOAK_FAILED = "soak_failed"
    SOAK_UNSUPPORTED = "soak_unsupported"
    REFUSED = "refused"
    FORBIDDEN = "forbidden"
    DATASET_DELETED = "dataset_deleted"
    NO_PLACE = "no_place"
    WORKSPACE_MISMATCH = "workspace_mismatch"
    WITHDRAWAL_DOUBTFUL = "withdrawal_doubtful"
    EXHAUSTED = "exhausted"


@dataclass(frozen=True, slots=True)
class Done:
    """This message has nothing left to do now; ``state`` is where the move stands (``flipped`` or ``done``)."""

    state: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """There was nothing to do: unknown, done, parked, not due yet, or another attempt is at it. Nothing was written."""

    why: str


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody else holds the dataset's lock or rows. Costs no attempt; again in ``after`` seconds."""

    after: float
    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A whole system is away or throttles. Costs no attempt; again in ``after`` seconds."""

    after: float
    why: str


@dataclass(frozen=True, slots=True)
class Retry:
    """This attempt failed; again in ``after`` seconds. When attempts run out the job is parked with ``code``."""

    after: float
    why: str
    code: ParkCode = ParkCode.EXHAUSTED
    urgent: bool = False
    """A rename may have happened and the column does not say so yet: never parked, tried again within seconds."""


@dataclass(frozen=True, slots=True)
class Park:
    """The job needs a person: why, and the command that helps."""

    code: ParkCode
    why: str
    remedy: str
    beside: str | None = None
    """Of a divergence: the namespace of the name that has diverged from the live one."""


Outcome = Done | Ignored | Busy | Wait | Retry | Park


def backoff(attempt: int, jitter: float) -> float:
    """Seconds until the next try: 5, 10, 20 … at most 300, spread by ``jitter`` (0 ≤ jitter < 1) over ±20 %."""
    plain: float = min(300.0, 5.0 * 2.0 ** min(max(0, attempt - 1), 6))
    return plain * (0.8 + 0.4 * jitter)
