"""The plan of a chaos run: the seed alone decides it, and every kind of disaster comes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.chaos.faults import RULES
from tests.chaos.plan import OF_PROCESSES, OF_THE_CATALOG, OUTAGES, Disaster, Strike, plan
from tests.chaos.striking import _DO

TEN_MINUTES = 600.0


def test_the_same_seed_gives_the_same_plan() -> None:
    assert plan(7, TEN_MINUTES) == plan(7, TEN_MINUTES)


def test_another_seed_gives_another_plan() -> None:
    assert plan(7, TEN_MINUTES) != plan(8, TEN_MINUTES)


def test_a_longer_run_brings_every_disaster() -> None:
    processes, catalog = plan(7, TEN_MINUTES)
    assert {strike.disaster for strike in (*processes, *catalog)} == set(Disaster)


def test_each_round_brings_every_kind_as_often_as_it_counts() -> None:
    processes, catalog = plan(7, TEN_MINUTES)
    for strikes, kinds in ((processes, OF_PROCESSES), (catalog, OF_THE_CATALOG)):
        first_round = [strike.disaster for strike in strikes][: sum(kinds.values()) + (kinds is OF_THE_CATALOG)]
        assert {disaster: first_round.count(disaster) for disaster in kinds} == dict(kinds)


def test_of_the_outages_one_comes_each_time_round() -> None:
    _, catalog = plan(7, TEN_MINUTES)
    outages = [strike.disaster for strike in catalog if strike.disaster in OUTAGES]
    assert len(outages) > len(OUTAGES)
    assert all(set(outages[at : at + 3]) == set(OUTAGES) for at in range(0, len(outages) - 2, 3))


@pytest.mark.parametrize("seconds", [45.0, TEN_MINUTES])
def test_strikes_of_one_hand_follow_one_another_and_end_in_time(seconds: float) -> None:
    def end(strike: Strike) -> float:
        return strike.at + strike.seconds

    for strikes in plan(3, seconds):
        assert len(strikes) > 5
        assert all(end(one) <= other.at for one, other in pairwise(strikes))
        assert end(strikes[-1]) <= seconds + 0.01


def test_every_disaster_is_carried_out_by_somebody() -> None:
    assert set(_DO) == set(Disaster)
    assert not set(RULES) & set(OF_PROCESSES)
