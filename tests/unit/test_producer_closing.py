"""What the closing check calls left, and what it lets stand apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from producer.closing import EXAMPLES, TO_DO, Left, advice, closing, sort
from producer.plan import Reason
from tests.unit.test_plan import MOVABLE
from worker.moves.machine import Direction, State

OUT: dict[str, Any] = {"direction": Direction.OUT}
MOVED: dict[str, Any] = {"iceberg_namespace": "sales.europe", **OUT}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, Left.MOVABLE),
        ({"state": State.QUEUED, **OUT}, Left.QUEUED),
        ({"state": State.QUEUED, **OUT, "exists": False}, Left.QUEUED),
        ({"state": State.PARKED, **OUT}, Left.PARKED),
        ({"state": State.PARKED, **OUT, "schema_id": None}, Reason.NO_SCHEMA),
        ({"state": State.PARKED, **OUT, "exists": False}, Reason.NO_DATASET),
        ({"state": State.PARKED, **OUT, "exists": False, "legacy_rows": 0}, None),
        ({"state": State.PARKED, **MOVED, "legacy_rows": 0}, None),
        ({"state": State.PARKED, **MOVED, "legacy_rows": 0, "paired": True}, Left.TWO_POINTERS),
        (
            {"state": State.PARKED, **OUT, "exists": False, "legacy_rows": 0, "paired": True},
            None,
        ),
        ({"state": State.FLIPPED, **MOVED, "legacy_rows": 0}, None),
        ({"state": State.FLIPPED, **MOVED}, Left.LATE_ROWS),
        ({"state": State.DONE, **MOVED, "legacy_rows": 0}, None),
        ({"state": State.DONE, **MOVED}, Left.LATE_ROWS),
        ({"state": State.DONE, **MOVED, "exists": False}, Reason.NO_DATASET),
        ({"state": State.DONE, **OUT, "legacy_rows": 0}, Left.COLUMN_RESET),
        ({"state": State.DONE, "direction": Direction.BACK}, Reason.REVERTED),
        ({"schema_id": None}, Reason.NO_SCHEMA),
        ({"target_shared": True}, Reason.TARGET_CONFLICT),
        ({"iceberg_namespace": "sales.europe"}, Reason.ALREADY_PLACED),
        ({"iceberg_namespace": "sales.europe", "legacy_rows": 0}, None),
        ({"succeeded_rows": 0, "legacy_rows": 0, "source_identifier": None}, None),
        ({"legacy_rows": 0, "source_identifier": None}, None),
    ],
)
def test_each_dataset_is_left_apart_or_neither(changes: dict[str, Any], kind: Left | Reason | None) -> None:
    assert sort(replace(MOVABLE, **changes)) is kind


def test_only_what_is_left_fails_the_check() -> None:
    assert closing([replace(MOVABLE, schema_id=None)]).passed
    assert not closing([MOVABLE]).passed
    assert closing([]).passed


def test_heaps_count_everything_and_name_a_few() -> None:
    found = closing(replace(MOVABLE, dataset_id=str(number)) for number in range(EXAMPLES + 5))
    heap = found.left[Left.MOVABLE]
    assert (heap.datasets, heap.log_rows, len(heap.examples)) == (EXAMPLES + 5, 3 * (EXAMPLES + 5), EXAMPLES)


def test_each_kind_has_its_advice() -> None:
    assert set(TO_DO) == set(Left)
    assert all(advice(kind) for kind in (*Left, *Reason))
