"""The move's state machine, as data.

Responsible for: which states there are and which transitions are legal. ``docs/lifecycle.md`` draws the same picture,
the check constraints in Postgres list the same states, and tests hold all three together.
Must not know: how a transition is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a move stands."""

    QUEUED = "queued"
    FLIPPED = "flipped"
    DONE = "done"
    PARKED = "parked"


class Direction(StrEnum):
    """Which way a move goes: ``out`` from the legacy namespace to its place, ``back`` by a revert."""

    OUT = "out"
    BACK = "back"


@dataclass(frozen=True, slots=True)
class Transition:
    """One legal step. ``letter`` names it in the picture and in ``reroot.move_events``; no target: it is removed."""

    letter: str
    source: State | None
    target: State | None
    meaning: str


TRANSITIONS: Final = (
    Transition("a", None, State.QUEUED, "planned"),
    Transition("b", State.QUEUED, State.FLIPPED, "stands under the target, soaked, column and log flipped"),
    Transition("c", State.QUEUED, State.DONE, "the same by rename: no second pointer is left"),
    Transition("d", State.FLIPPED, State.DONE, "after the grace period the other pointer is withdrawn"),
    Transition("e", State.QUEUED, State.PARKED, "needs a person"),
    Transition("f", State.FLIPPED, State.PARKED, "the other pointer moved after the flip, or doubt"),
    Transition("g", State.PARKED, State.QUEUED, "retry, not flipped yet"),
    Transition("h", State.PARKED, State.FLIPPED, "retry, flipped"),
    Transition("i", State.FLIPPED, State.QUEUED, "revert or resolve: the same machine, direction back"),
    Transition("i", State.DONE, State.QUEUED, "revert or resolve: the same machine, direction back"),
    Transition("i", State.PARKED, State.QUEUED, "revert or resolve: the same machine, direction back"),
    Transition("j", State.QUEUED, None, "cancelled before anything was changed"),
    Transition("j", State.QUEUED, State.DONE, "cancelled before anything was changed"),
)

LEGAL: Final = frozenset((t.source, t.target) for t in TRANSITIONS)

WORKABLE: Final = frozenset({State.QUEUED, State.FLIPPED})
"""The states in which a worker has something to do."""
