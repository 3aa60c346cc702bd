"""Every reason, its place in the order, and the target of a move."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from producer.plan import ADVICE, Excluded, Planned, Reason, classify, judged
from worker.controlplane.facts import DatasetFacts
from worker.identifiers import TableIdentifier
from worker.moves.machine import Direction, State

MOVABLE = DatasetFacts(
    dataset_id="d1",
    exists=True,
    workspace_id="w1",
    iceberg_namespace=None,
    schema_id="s1",
    schema_exists=True,
    schema_slug="europe",
    catalog_exists=True,
    catalog_slug="sales",
    catalog_workspace_id="w1",
    succeeded_rows=3,
    legacy_rows=3,
    legacy_identifiers=1,
    source_identifier="datasets.ds_1",
    source_shared=False,
    target_shared=False,
    state=None,
    direction=None,
    claim=None,
    park_code=None,
    paired=False,
)


def reason_of(**changes: Any) -> Reason:
    verdict = classify(replace(MOVABLE, **changes))
    assert isinstance(verdict, Excluded), verdict
    return verdict.reason


def test_a_movable_dataset_goes_to_its_schema_under_its_own_name() -> None:
    assert classify(MOVABLE) == Planned(
        dataset_id="d1",
        workspace_id="w1",
        source=TableIdentifier(("datasets",), "ds_1"),
        target=TableIdentifier(("sales", "europe"), "ds_1"),
        catalog_slug="sales",
        schema_slug="europe",
        log_rows=3,
        claim=None,
    )


def test_the_target_namespace_is_what_the_column_will_hold() -> None:
    verdict = classify(MOVABLE)
    assert isinstance(verdict, Planned)
    assert verdict.target_namespace == "sales.europe"


def test_a_name_keeps_its_own_dots() -> None:
    verdict = classify(replace(MOVABLE, source_identifier="datasets.a.b"))
    assert isinstance(verdict, Planned)
    assert verdict.target == TableIdentifier(("sales", "europe"), "a.b")
    assert str(verdict.source) == "datasets.a.b"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"state": State.QUEUED, "direction": Direction.OUT}, Reason.QUEUED),
        ({"state": State.QUEUED, "direction": Direction.BACK}, Reason.QUEUED),
        ({"state": State.FLIPPED, "direction": Direction.OUT}, Reason.FLIPPED),
        ({"state": State.DONE, "direction": Direction.OUT}, Reason.DONE),
        ({"state": State.DONE, "direction": Direction.BACK}, Reason.REVERTED),
        ({"state": State.PARKED, "direction": Direction.OUT}, Reason.PARKED),
        ({"exists": False, "workspace_id": None}, Reason.NO_DATASET),
        ({"iceberg_namespace": "sales.europe"}, Reason.ALREADY_PLACED),
        ({"iceberg_namespace": ""}, Reason.ALREADY_PLACED),
        ({"succeeded_rows": 0, "legacy_rows": 0, "source_identifier": None}, Reason.NOT_SUCCEEDED),
        ({"legacy_rows": 0, "legacy_identifiers": 0, "source_identifier": None}, Reason.NOT_LEGACY),
        ({"schema_id": None, "schema_exists": False, "catalog_exists": False}, Reason.NO_SCHEMA),
        ({"schema_exists": False, "catalog_exists": False}, Reason.SCHEMA_MISSING),
        ({"catalog_exists": False, "catalog_slug": None}, Reason.CATALOG_MISSING),
        ({"catalog_slug": None}, Reason.SLUG_MISSING),
        ({"schema_slug": None}, Reason.SLUG_MISSING),
        ({"catalog_workspace_id": "w2"}, Reason.WORKSPACE_MISMATCH),
        ({"legacy_identifiers": 2}, Reason.AMBIGUOUS_SOURCE),
        ({"source_shared": True}, Reason.SHARED_SOURCE),
        ({"target_shared": True}, Reason.TARGET_CONFLICT),
        ({"source_identifier": "datasets."}, Reason.NAME_INVALID),
        ({"source_identifier": "datasets." + "x" * 256}, Reason.NAME_INVALID),
        ({"source_identifier": "datasets.a\tb"}, Reason.NAME_INVALID),
        ({"source_identifier": "datasets.a\x1fb"}, Reason.NAME_INVALID),
        ({"source_identifier": "datasets.a/b"}, Reason.NAME_INVALID),
        ({"source_identifier": "datasets.a+b"}, Reason.NAME_INVALID),
        ({"source_identifier": "datasets. a"}, Reason.NAME_INVALID),
        ({"source_identifier": "datasets.."}, Reason.NAME_INVALID),
        ({"source_identifier": "datasets..."}, Reason.NAME_INVALID),
    ],
)
def test_what_does_not_move_says_why(changes: dict[str, Any], reason: Reason) -> None:
    assert reason_of(**changes) is reason


@pytest.mark.parametrize("name", ["x" * 255, "Ünïcode", "a b", "a-b", "DS_1", "a.b", "50%"])
def test_a_name_that_catalogs_hold_is_planned(name: str) -> None:
    assert isinstance(classify(replace(MOVABLE, source_identifier=f"datasets.{name}")), Planned)


def test_every_reason_is_reached_and_has_its_advice() -> None:
    parameters = test_what_does_not_move_says_why.pytestmark[0].args[1]
    assert {reason for _, reason in parameters} == set(Reason) - {Reason.BEYOND_LIMIT}
    assert set(ADVICE) == set(Reason)


IN_ORDER: list[tuple[dict[str, Any], Reason]] = [
    ({"state": State.PARKED, "direction": Direction.OUT, "park_code": "name_taken"}, Reason.PARKED),
    ({"exists": False}, Reason.NO_DATASET),
    ({"iceberg_namespace": "sales.europe"}, Reason.ALREADY_PLACED),
    ({"succeeded_rows": 0}, Reason.NOT_SUCCEEDED),
    ({"source_identifier": None}, Reason.NOT_LEGACY),
    ({"schema_id": None}, Reason.NO_SCHEMA),
    ({"schema_exists": False}, Reason.SCHEMA_MISSING),
    ({"catalog_exists": False}, Reason.CATALOG_MISSING),
    ({"catalog_workspace_id": "w2"}, Reason.WORKSPACE_MISMATCH),
    ({"schema_slug": None}, Reason.SLUG_MISSING),
    ({"legacy_identifiers": 2}, Reason.AMBIGUOUS_SOURCE),
    ({"source_shared": True}, Reason.SHARED_SOURCE),
    ({"target_shared": True}, Reason.TARGET_CONFLICT),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_of_several_reasons_the_first_in_order_is_named(first: int) -> None:
    changes: dict[str, Any] = {}
    for later, _ in reversed(IN_ORDER[first:]):
        changes.update(later)
    assert reason_of(**changes) is IN_ORDER[first][1]


def test_again_takes_what_was_taken_back_and_nothing_else() -> None:
    back = replace(MOVABLE, state=State.DONE, direction=Direction.BACK, claim=7)
    verdict = classify(back, again=True)
    assert isinstance(verdict, Planned)
    assert verdict.claim == 7
    for state in (State.QUEUED, State.FLIPPED, State.DONE, State.PARKED):
        assert isinstance(classify(replace(back, state=state, direction=Direction.OUT), again=True), Excluded)


def test_again_still_asks_whether_it_can_move() -> None:
    back = replace(MOVABLE, state=State.DONE, direction=Direction.BACK, claim=7, schema_id=None)
    verdict = classify(back, again=True)
    assert isinstance(verdict, Excluded)
    assert verdict.reason is Reason.NO_SCHEMA


def test_what_is_excluded_carries_its_legacy_rows_and_the_detail() -> None:
    verdict = classify(replace(MOVABLE, state=State.PARKED, direction=Direction.OUT, park_code="name_taken"))
    assert verdict == Excluded("d1", Reason.PARKED, "name_taken", 3)


def test_a_limit_takes_the_first_that_can_move_and_names_the_rest() -> None:
    stuck = replace(MOVABLE, dataset_id="d0", schema_id=None)
    facts = [stuck, *(replace(MOVABLE, dataset_id=f"d{number}") for number in (1, 2, 3))]
    verdicts = list(judged(facts, limit=2))
    assert [isinstance(verdict, Planned) for verdict in verdicts] == [False, True, True, False]
    assert verdicts[3] == Excluded("d3", Reason.BEYOND_LIMIT, "sales.europe.ds_1", 3)


def test_without_a_limit_all_are_planned() -> None:
    assert all(isinstance(verdict, Planned) for verdict in judged([MOVABLE] * 5))
