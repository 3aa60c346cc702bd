"""What the contract of the control plane is told with: one dataset, its names, its flip."""

from __future__ import annotations

from tests.support.plane_subjects import NAME, PLACE, SNAPSHOT, PlaneSubject
from worker.identifiers import LEGACY_NAMESPACE, TableIdentifier
from worker.moves.machine import State
from worker.moves.ports import Claimed, ControlPlane, Flip, Pointer, Written
from worker.outcome import Busy, Park, ParkCode, Retry, Wait

OLD = TableIdentifier((LEGACY_NAMESPACE,), NAME)
NEW = TableIdentifier.within(PLACE, NAME)
PARK = Park(ParkCode.DIVERGED, "both moved", "compare them")


def flip_to(
    state: State = State.FLIPPED,
    *,
    before: str | None = None,
    after: str | None = PLACE,
    left: TableIdentifier = OLD,
    live: TableIdentifier = NEW,
    entries: tuple[int, ...] = (),
) -> Flip:
    return Flip(before, after, left, live, state, "u", "m1", 7, SNAPSHOT, 10, 900.0, entries)


def pointer(identifier: TableIdentifier = NEW, location: str = "m1") -> Pointer:
    return Pointer(identifier, "u", location, 7)


def claimed_by(adapter: ControlPlane, dataset: str) -> Claimed:
    """A claim, as an attempt makes it under the lock."""
    move = adapter.peek(dataset)
    assert move is not None
    claimed = adapter.claim(move)
    assert claimed is not None
    return claimed


def flipped(plane: PlaneSubject, dataset: str, flip: Flip | None = None) -> None:
    """Bring the dataset to the end of its first attempt."""
    adapter = plane.adapter()
    with adapter.lock(dataset, queue_for=None) as lock:
        assert lock is not None
        assert lock.flip(claimed_by(adapter, dataset), flip or flip_to()) is Written.COMMITTED


def ended(plane: PlaneSubject, dataset: str, outcome: Park | Retry | Wait | Busy) -> None:
    adapter = plane.adapter()
    with adapter.lock(dataset, queue_for=None) as lock:
        assert lock is not None
        assert lock.end(claimed_by(adapter, dataset), outcome)
