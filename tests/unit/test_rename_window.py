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
from worker.outcome import Done, ParkCode, Retry, Wait

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


def test_a_place_that_cannot_be_read_for_a_minute_is_left_again() -> None:
    """A server that fails on this one name for good: the table is missed until it is back."""
    stage = renamed_and_dead()

    def failing(_: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        if call.port == "catalog" and call.method == "load" and call.arguments[0] == NEW:
            raise CatalogError(ErrorCode.UNCLEAR, ErrorKind.TRANSIENT, "500: cannot serialize")
        return stage.faults.plainly(call, perform)

    stage.strike = failing
    stage.settle()
    assert stage.violations + stage.end_violations() == []
    assert stage.pointers() == {OLD} == {stage.live}


def test_a_rename_for_which_no_time_is_left_leaves_no_open_entry() -> None:
    stage = TwinStage(Policy(strategy=Strategy.RENAME), CatalogDouble(once=True))

    def slow_soak(_: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        if call.method == "soak":
            stage.pass_time(stage.policy.deadline_seconds + 1)
        return stage.faults.plainly(call, perform)

    stage.strike = slow_soak
    assert isinstance(stage.attempt(), Retry)
    assert "rename" not in {call.method for call in stage.calls}
    assert stage.open_entries() == []


def test_nothing_is_asked_of_the_catalog_while_the_rows_of_a_failed_flip_are_held() -> None:
    stage = TwinStage(Policy(strategy=Strategy.RENAME), CatalogDouble(once=True))
    held: list[PortCall] = []

    def silent(process: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        reserved = process.lock is not None and process.lock.reserved is not None
        if call.port == "catalog" and call.method == "namespace_exists" and reserved:
            held.append(call)
        if call.port == "catalog" and call.method == "rename":
            raise CatalogError(ErrorCode.UNAVAILABLE, ErrorKind.UNKNOWN, "503")
        if call.port == "catalog" and call.method == "load" and reserved:
            raise CatalogError(ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT, "503")
        return stage.faults.plainly(call, perform)

    stage.strike = silent
    stage.attempt()
    assert held == []


def test_what_urgent_datasets_leave_no_time_for_costs_no_attempt() -> None:
    urgent = renamed_and_dead()
    other = TwinStage(urgent.policy, urgent.catalog, urgent.plane, "e")
    other.neighbours = [urgent]
    urgent.request_seconds = 20
    assert urgent.plane.publish(DATASET)
    assert isinstance(other.attempt(), Wait)
    assert urgent.row.state is State.DONE
    assert (other.row.attempts, other.row.published_at) == (0, None)
    assert other.pass_time_until_due()
    assert other.attempt() == Done("done")


def test_a_server_that_overwrites_a_taken_name_loses_no_commit_by_the_question_for_the_right_to_withdraw() -> None:
    stage = TwinStage(Policy(strategy=Strategy.REGISTER))
    dies_at(stage, "soak")
    stage.engine_commits(NEW)

    def overwriting(_: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        if call.port == "catalog" and call.method == "rename":
            stage.catalog.names.pop(call.arguments[1], None)
        return stage.faults.plainly(call, perform)

    stage.strike = overwriting
    stage.settle()
    assert stage.violations + stage.end_violations() == []
    assert stage.row.state is State.DONE
