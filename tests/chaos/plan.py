"""Which disasters happen, and when: decided by the seed alone, before anything starts.

Responsible for: the kinds of disasters and two sequences of them, one for processes and one for the catalog, which run
side by side.
Must not know: how a disaster is carried out.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Disaster(StrEnum):
    """What can happen; the value reads in the report."""

    CHILDREN_KILLED = "some of a worker's processes killed (-9)"
    WORKER_KILLED = "a worker's main process killed (-9), started again"
    ALL_WORKERS_KILLED = "all workers killed (-9) at once, started again"
    WORKER_STOPPED = "a worker stopped (SIGTERM), started again"
    SWEEPER_KILLED = "a worker's sweeper killed (-9)"
    BROKER_KILLED = "the broker killed (-9), started again with its file"
    BROKER_EMPTIED = "the broker killed (-9), started again without its file"
    POSTGRES_RESTARTED = "Postgres stopped (immediate), started again"
    POSTGRES_FROZEN = "every process of Postgres stands still (SIGSTOP), and goes on"

    AWAY = "catalog away: 503 to everything"
    UNREACHABLE = "catalog away: connections refused"
    FROZEN = "catalog away: it takes requests and does not answer"
    SLOW = "catalog slow, partly beyond the time limit of a request"
    THROTTLED = "catalog throttles (429 with Retry-After)"
    REFUSED_BEFORE = "changes answered 500, 502 or 504, not done"
    REFUSED_AFTER = "changes answered 500, 502 or 504, but done"
    DROPPED_BEFORE = "connections dropped before a change"
    DROPPED_AFTER = "connections dropped after a change"
    FALSE_TAKEN = "changes answered 409, whatever is true"
    FALSE_GONE = "requests answered 404, whatever is true"
    REPEATED = "changes sent twice"
    STALE = "loads answered as they were before"


OF_PROCESSES: Final[Mapping[Disaster, int]] = {
    Disaster.CHILDREN_KILLED: 3,
    Disaster.WORKER_KILLED: 2,
    Disaster.ALL_WORKERS_KILLED: 1,
    Disaster.WORKER_STOPPED: 1,
    Disaster.SWEEPER_KILLED: 1,
    Disaster.BROKER_KILLED: 1,
    Disaster.BROKER_EMPTIED: 1,
    Disaster.POSTGRES_RESTARTED: 2,
    Disaster.POSTGRES_FROZEN: 1,
}
"""How often each comes before all of them come again."""

OUTAGES: Final = (Disaster.AWAY, Disaster.UNREACHABLE, Disaster.FROZEN)
"""Only one of them each time round: whoever waits for a catalog that is away hears no lies."""

OF_THE_CATALOG: Final[Mapping[Disaster, int]] = {
    disaster: 1 for disaster in Disaster if disaster not in {*OF_PROCESSES, *OUTAGES}
} | {Disaster.REFUSED_AFTER: 2, Disaster.DROPPED_AFTER: 2}

LONGEST_OUTAGE: Final = 30.0
"""Seconds, in a run of five minutes or more; a shorter run has shorter ones."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One disaster: ``at`` seconds after the start, for ``seconds``; ``chance`` seeds what else is left to chance."""

    disaster: Disaster
    at: float
    seconds: float
    chance: int


def plan(seed: int, seconds: float) -> tuple[list[Strike], list[Strike]]:
    """The strikes against processes and those of the catalog, each in order."""
    processes = random.Random(f"{seed} processes")  # noqa: S311 - chance that a seed repeats
    catalog = random.Random(f"{seed} catalog")  # noqa: S311 - the same
    return (
        list(_strikes(processes, _decks(processes, OF_PROCESSES), seconds, gap=(1.0, 3.0))),
        list(_strikes(catalog, _decks(catalog, OF_THE_CATALOG, OUTAGES), seconds, gap=(0.2, 1.0))),
    )


def _decks(
    chance: random.Random, kinds: Mapping[Disaster, int], in_turn: tuple[Disaster, ...] = ()
) -> Iterator[Disaster]:
    """Every kind, as often as it is worth, in an order of its own each time round; of ``in_turn`` one a round."""
    turns = itertools.cycle(chance.sample(in_turn, len(in_turn))) if in_turn else None
    while True:
        deck = [disaster for disaster, times in kinds.items() for _ in range(times)]
        if turns is not None:
            deck.append(next(turns))
        chance.shuffle(deck)
        yield from deck


def _strikes(
    chance: random.Random, disasters: Iterator[Disaster], seconds: float, *, gap: tuple[float, float]
) -> Iterator[Strike]:
    at = chance.uniform(*gap)
    for disaster in disasters:
        lasts = _lasts(chance, disaster, seconds)
        if at + lasts > seconds:
            return
        yield Strike(disaster, round(at, 2), round(lasts, 2), chance.randrange(2**32))
        at += lasts + chance.uniform(*gap)


def _lasts(chance: random.Random, disaster: Disaster, seconds: float) -> float:
    """Seconds: how long the catalog misbehaves, or how long what was ended stays away."""
    if disaster in OUTAGES:
        return min(LONGEST_OUTAGE, seconds / 10) * chance.uniform(0.5, 1.0)
    if disaster is Disaster.POSTGRES_FROZEN:
        return min(LONGEST_OUTAGE, seconds / 10) * chance.uniform(0.5, 1.0)
    if disaster in OF_PROCESSES:
        return chance.uniform(0.2, 2.0)
    return min(5.0, seconds / 25) * chance.uniform(0.6, 1.0)
