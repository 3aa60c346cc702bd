"""Where a queued dataset is to go, and what the control plane must say for that.

Responsible for: the two names and the two values of the column, for both directions, and the reasons not to go.
Must not know: the catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.identifiers import LEGACY_NAMESPACE
from worker.moves.machine import Direction
from worker.outcome import Park, ParkCode

if TYPE_CHECKING:
    from worker.identifiers import TableIdentifier
    from worker.moves.job import Job


@dataclass(frozen=True, slots=True)
class Goal:
    """The way of one direction."""

    source: TableIdentifier
    """The name that is left: *old* in the protocol's words."""
    target: TableIdentifier
    """The name that it goes to: *new*."""
    before: str | None
    """What the column holds now."""
    after: str | None
    """What the flip sets it to."""

    @property
    def adopted(self) -> bool:
        """Another hand has set the column already."""
        return self.before == self.after


def goal_of(job: Job) -> Goal | Park:
    """The way that the dataset goes, as the control plane says it now; or why it does not."""
    if not job.dataset.exists:
        return Park(
            ParkCode.DATASET_DELETED, "the dataset was deleted before it was moved", "nothing is left to do for it"
        )
    return _out(job) if job.move.direction is Direction.OUT else _back(job)


def goal_to(job: Job, source: TableIdentifier, target: TableIdentifier) -> Goal:
    """The way to a name where the table stands already, whatever the control plane says now."""
    after = None if target.namespace == (LEGACY_NAMESPACE,) else ".".join(target.namespace)
    return Goal(source, target, job.dataset.iceberg_namespace, after)


def _out(job: Job) -> Goal | Park:
    column, place = job.dataset.iceberg_namespace, job.dataset.place
    if job.move.given_up is not None and job.move.given_up == job.move.old_location:
        place = job.move.target_namespace  # a person gave the old side up for this one, whatever the schema is now
    if column is not None:
        if column in {place, job.move.target_namespace}:
            return Goal(job.left, job.named(column), column, column)
        return Park(
            ParkCode.PLACED_ELSEWHERE,
            f"datasets.iceberg_namespace is {column} already, not {place}",
            "nothing, if that is right: the resolver names it; else see docs/operations.md",
        )
    if place is None:
        return Park(
            job.dataset.no_place or ParkCode.NO_PLACE,
            "its schema or catalog is gone, or belongs to another workspace",
            "give it a schema, then `reroot retry`",
        )
    return Goal(job.left, job.named(place), None, place)


def _back(job: Job) -> Goal | Park:
    column, home = job.dataset.iceberg_namespace, job.named(job.move.source_namespace)
    if column in {None, job.move.target_namespace}:
        return Goal(job.left, home, column, None)
    return Park(
        ParkCode.PLACED_ELSEWHERE,
        f"datasets.iceberg_namespace is {column}, not {job.move.target_namespace}, where Reroot had put it",
        "nothing, if that is right: the resolver names it; else see docs/operations.md",
    )
