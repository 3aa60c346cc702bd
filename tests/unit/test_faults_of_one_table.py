"""A fault of one table is told apart from an outage of the warehouse, and what tells them apart may fail itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.twin_stage import NEW, OLD, Process, TwinStage
from worker.identifiers import TableIdentifier
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind
from worker.moves.machine import State
from worker.outcome import ParkCode, Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.faults import PortCall

OTHER = TableIdentifier(OLD.namespace, "ds_other")


def failing(stage: TwinStage, fails: Callable[[PortCall], bool]) -> None:
    """The catalog answers 500 to these calls, for good."""

    def strike(_: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        if call.port == "catalog" and fails(call):
            raise CatalogError(ErrorCode.UNCLEAR, ErrorKind.TRANSIENT, "500: cannot be read")
        return stage.faults.plainly(call, perform)

    stage.strike = strike


def test_the_last_tables_of_the_legacy_namespace_are_damaged_and_the_warehouse_is_not_away() -> None:
    """Those that are left at the end of a migration are those that cannot be moved."""
    stage = TwinStage()
    stage.catalog.create(OTHER)
    stage.catalog.create(TableIdentifier(NEW.namespace, "ds_moved"))
    failing(stage, lambda call: call.method == "load" and call.arguments[0].namespace == OLD.namespace)
    stage.settle()
    assert (stage.row.state, stage.row.park_code) == (State.PARKED, ParkCode.TABLE_UNREADABLE)
    assert not any(warehouse.down_until for warehouse in stage.plane.warehouses.values())


@pytest.mark.parametrize("listed", [True, False])
def test_a_listing_that_fails_ends_no_attempt_in_an_exception(*, listed: bool) -> None:
    stage = TwinStage()
    stage.catalog.create(OTHER)
    failing(stage, lambda call: call.method == "load" or (call.method == "list_tables" and not listed))
    outcome = stage.attempt()
    assert isinstance(outcome, Wait) is listed
    assert stage.row.attempt_started_at is None, "its end is written"
