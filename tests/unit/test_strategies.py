"""Whose word counts about a warehouse, and how many warehouses are told in few lines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer.strategies import AUTO, InForce, in_force, told
from worker.controlplane.warehouses import Warehouse
from worker.moves.ports import Strategy

FOUND = Warehouse(
    name="w",
    strategy=Strategy.RENAME,
    set_by_operator=False,
    reason="register answers that free names exist (2 datasets)",
    away_for=None,
    away_because=None,
)
SAID = replace(FOUND, strategy=Strategy.REGISTER, set_by_operator=True, reason="set by an operator")
UNKNOWN = replace(FOUND, strategy=None, reason=None)


@pytest.mark.parametrize(
    ("known", "setting", "strategy", "reason"),
    [
        (FOUND, AUTO, Strategy.RENAME, FOUND.reason),
        (FOUND, "register", Strategy.REGISTER, "REROOT_STRATEGY=register"),
        (SAID, AUTO, Strategy.REGISTER, "set by an operator"),
        (SAID, "rename", Strategy.REGISTER, "set by an operator"),
        (UNKNOWN, AUTO, None, ""),
        (UNKNOWN, "rename", Strategy.RENAME, "REROOT_STRATEGY=rename"),
    ],
)
def test_an_operator_goes_before_the_setting_and_that_before_what_was_found_out(
    known: Warehouse, setting: str, strategy: Strategy | None, reason: str
) -> None:
    found = in_force(known, setting)
    assert (found.strategy, found.reason, found.set_by_operator) == (strategy, reason, known.set_by_operator)


def test_warehouses_that_are_alike_share_a_line_and_the_many_come_first() -> None:
    many = [
        InForce(f"w_{number}", Strategy.REGISTER, "two names may hold one table", set_by_operator=False)
        for number in range(1003)
    ]
    odd = InForce("w_odd", Strategy.RENAME, "set by an operator", set_by_operator=True)
    new = InForce("w_new", None, "", set_by_operator=False)
    assert told([odd, new, *many]) == [
        "register in w_0, w_1, w_2 and 1,000 more: two names may hold one table",
        "rename in w_odd: set by an operator",
        "not known yet in w_new: the first move finds it out",
    ]


def test_a_strategy_without_a_reason_is_told_without_one() -> None:
    assert told([InForce("w", Strategy.RENAME, "", set_by_operator=False)]) == ["rename in w"]
