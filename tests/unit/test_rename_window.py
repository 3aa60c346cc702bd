"""Between a rename and its flip readers miss: nothing parks there, and no answer is taken for a look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.catalog_double import CatalogDouble
from tests.support.outages import Outage
from tests.support.scenes import dies_at
from tests.support.twin_stage import DATASET, NEW, OLD, Process, TwinStage
from tests.support.twins import WAREHOUSE, WarehouseRow
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind
from worker.moves.machine import State
from worker.moves.policy import Policy
from worker.moves.ports import Strategy
from worker.outcome import Done, ParkCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.faults import PortCall


def renamed_and_dead() -> TwinStage:
    """A catalog that keeps one name, and an attempt that died right after its rename."""
    stage = TwinStage(Policy(strategy=Strategy.RENAME), CatalogDouble(once=True))
    dies_at(stage, "rename", after=True)
    return stage


def test_a_place_that_is_hidden_is_left_again_and_readers_find_the_table() -> None:
    stage = renamed_and_dead()

    def hiding(_: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        if call.port == "catalog" and call.method == "load" and call.arguments[0].namespace == NEW.namespace:
            raise CatalogError(ErrorCode.TABLE_MISSING, ErrorKind.PERMANENT, "hidden")
        if call.port == "catalog" and call.method == "namespace_exists" and call.arguments[0] == NEW.namespace:
            return False
        return stage.faults.plainly(call, perform)

    stage.strike = hiding
    stage.settle()
    assert (stage.row.state, stage.row.park_code) == (State.PARKED, ParkCode.NAME_HIDDEN)
    assert stage.pointers() == {OLD} == {stage.live}
    assert stage.violations + stage.end_violations() == []


def test_a_clean_yes_to_the_way_back_is_looked_after() -> None:
    stage = renamed_and_dead()
    stage.plane.datasets[DATASET].schema_id = "t"
    swallowed: list[PortCall] = []

    def swallowing(_: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        if call.port == "catalog" and call.method == "rename" and not swallowed:
            swallowed.append(call)
            return None
        return stage.faults.plainly(call, perform)

    stage.strike = swallowing
    stage.settle()
    assert swallowed
    assert stage.row.state is State.DONE
    assert stage.pointers() == {stage.live}


@pytest.mark.parametrize("schema", ["s", "t", None])
def test_another_table_under_the_name_that_a_rename_left_does_not_stop_the_flip(schema: str | None) -> None:
    """Also where the table should go elsewhere by now: the way back is closed, and readers must find it."""
    stage = renamed_and_dead()
    stage.plane.datasets[DATASET].schema_id = schema
    stage.another_hand_creates(OLD)
    stage.settle()
    assert stage.violations + stage.end_violations() == []
    assert (stage.row.state, stage.live) == (State.DONE, NEW)


def test_an_open_rename_is_settled_by_reads_while_its_warehouse_refuses_changes() -> None:
    stage = renamed_and_dead()
    stage.plane.warehouses[WAREHOUSE] = WarehouseRow(down_until=stage.plane.now + 300)
    stage.outage = Outage.MAINTENANCE
    assert stage.plane.to_publish(DATASET)
    assert stage.attempt() == Done("done")
    assert stage.plane.warehouses[WAREHOUSE].down_until is not None, "nobody has asked for a change"


def test_an_open_rename_is_looked_at_less_and_less_often() -> None:
    stage = renamed_and_dead()
    stage.outage = Outage.UNAVAILABLE
    pauses = []
    while stage.plane.now < 1_600:
        assert stage.pass_time_until_due()
        stage.attempt()
        pauses.append(stage.row.not_before - stage.plane.now)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (1, 10)
    assert stage.row.attempts <= 1
    stage.outage = None
    assert stage.pass_time_until_due()
    assert stage.attempt() == Done("done")
