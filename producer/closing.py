"""The closing check, pure: of everything that is still legacy, what is left to do and what has no place to go.

Responsible for: sorting each dataset into *left* (the check fails) or *apart* (it does not), with the reason.
Must not know: SQL, the screen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from producer.plan import ADVICE, Excluded, Planned, Reason, classify, obstacle
from worker.moves.machine import Direction, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.controlplane.facts import DatasetFacts


class Left(StrEnum):
    """Why a dataset keeps the check from passing."""

    MOVABLE = "movable"
    QUEUED = "queued"
    PARKED = "parked"
    TWO_POINTERS = "two_pointers"
    LATE_ROWS = "late_rows"
    COLUMN_RESET = "column_reset"


TO_DO: Final = {
    Left.MOVABLE: "reroot move --all",
    Left.QUEUED: "a worker takes it: reroot status",
    Left.PARKED: "needs a person: reroot show DATASET",
    Left.TWO_POINTERS: "two names hold the table: reroot show",
    Left.LATE_ROWS: "written late: reroot retry DATASET",
    Left.COLUMN_RESET: "moved, then its column was cleared",
}
"""One line for each: what to do about it."""

EXAMPLES: Final = 20
"""How many datasets of each kind are named."""


@dataclass(slots=True)
class Heap:
    """Datasets of one kind, with their succeeded log rows in the legacy namespace."""

    datasets: int = 0
    log_rows: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, facts: DatasetFacts) -> None:
        """One more."""
        self.datasets += 1
        self.log_rows += facts.legacy_rows
        if len(self.examples) < EXAMPLES:
            self.examples.append(facts.dataset_id)


@dataclass(slots=True)
class Closing:
    """What the check found."""

    left: dict[Left, Heap] = field(default_factory=dict)
    apart: dict[Reason, Heap] = field(default_factory=dict)
    in_grace: int = 0
    """Flipped datasets whose other pointer is still to be withdrawn: they are moved, so the check does not mind."""

    pairs: Heap = field(default_factory=Heap)
    """Datasets whose table two names hold, or may hold, whatever their state. Maintenance must skip them."""

    @property
    def passed(self) -> bool:
        """Nothing movable is left."""
        return not self.left


def closing(facts: Iterable[DatasetFacts]) -> Closing:
    """Sort every dataset; what has nothing legacy about it is not mentioned."""
    found = Closing()
    for each in facts:
        if each.state is State.FLIPPED:
            found.in_grace += 1
        if each.paired:
            found.pairs.add(each)
        kind = sort(each)
        if isinstance(kind, Left):
            found.left.setdefault(kind, Heap()).add(each)
        elif kind is not None:
            found.apart.setdefault(kind, Heap()).add(each)
    return found


def sort(facts: DatasetFacts) -> Left | Reason | None:
    """Left, apart with its reason, or neither."""
    match facts.state:
        case State.QUEUED:
            return Left.QUEUED
        case State.PARKED:
            return _parked(facts)
        case State.FLIPPED | State.DONE if facts.direction is Direction.OUT:
            return _moved(facts)
        case _:
            return _unmoved(facts)


def _parked(facts: DatasetFacts) -> Left | Reason | None:
    """A parked dataset that has no place to go is no more left than one that was never planned."""
    if facts.paired and facts.exists:
        return Left.TWO_POINTERS
    stuck = obstacle(facts)
    if stuck is None:
        return Left.PARKED
    return stuck[0] if facts.legacy_rows else None


def _moved(facts: DatasetFacts) -> Left | Reason | None:
    if facts.exists and facts.iceberg_namespace is None:
        return Left.COLUMN_RESET
    if not facts.legacy_rows:
        return None
    return Left.LATE_ROWS if facts.exists else Reason.NO_DATASET


def _unmoved(facts: DatasetFacts) -> Left | Reason | None:
    verdict = classify(facts)
    if isinstance(verdict, Planned):
        return Left.MOVABLE
    assert isinstance(verdict, Excluded)
    return verdict.reason if verdict.log_rows else None


def advice(kind: Left | Reason) -> str:
    """What to do about a kind."""
    return TO_DO[kind] if isinstance(kind, Left) else ADVICE[kind]
