"""What becomes of moves while a whole server, warehouse or client is refused, and where only one table is.

The rules of the doubles were recorded: Lakekeeper's maintenance mode and its caches after a ``deactivate``, and the
user whom a Gravitino metalake does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.test_move_on_temperaments import WAREHOUSE, Lake, Subject
from tests.support.fault_proxy import FaultProxy, Rule, refuse
from tests.support.rest_double import TEMPERAMENTS, RestDouble
from tests.support.rest_double.routes import Kind
from worker.moves.ports import CREDENTIALS_REFUSED
from worker.outcome import MAX_ATTEMPTS, Outcome, Park, Retry, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.controlplane import ControlPlaneFixture

LONG = MAX_ATTEMPTS + 2


@pytest.fixture
def lake(
    request: pytest.FixtureRequest, database: str, control_plane: ControlPlaneFixture, tmp_path: Path
) -> Iterator[Lake]:
    with RestDouble(TEMPERAMENTS[request.param]) as double, FaultProxy(double.uri) as proxy:
        lake = Lake(database, control_plane, double, proxy, tmp_path / "warehouse")
        yield lake
        lake.close()


LAKEKEEPER = pytest.mark.parametrize("lake", ["lakekeeper-0.13.3"], indirect=True)
GRAVITINO = pytest.mark.parametrize("lake", ["gravitino-1.3"], indirect=True)


def attempt(lake: Lake, subject: Subject) -> Outcome:
    """One attempt, as if the time had come that job and warehouse wait for."""
    lake.plane.execute("UPDATE reroot.moves SET not_before = now()")
    lake.plane.execute("UPDATE reroot.warehouses SET down_until = now() WHERE down_until IS NOT NULL")
    return lake.mover.attempt(subject.id)


def away(lake: Lake) -> list[Any]:
    """Seconds for which the warehouse is away, and why; empty where it answers."""
    rows = lake.plane.execute(
        "SELECT extract(epoch FROM down_until - now())::float8, down_reason FROM reroot.warehouses"
        " WHERE down_until IS NOT NULL"
    )
    return list(rows[0]) if rows else []


def waits_for_nothing(lake: Lake, *subjects: Subject) -> None:
    """However often they are attempted, the datasets wait; no attempt is used up, and one event says why."""
    for subject in subjects:
        for _ in range(LONG):
            assert isinstance(attempt(lake, subject), Wait)
        [[state, attempts]] = lake.plane.execute(
            "SELECT state, attempts FROM reroot.moves WHERE dataset_id = %s", (subject.id,)
        )
        assert (state, attempts) == ("queued", 0)
        [[waits]] = lake.plane.execute(
            "SELECT count(*) FROM reroot.move_events WHERE dataset_id = %s AND event = 'wait'", (subject.id,)
        )
        assert waits <= 2
        assert lake.names(subject) <= {subject.old}


@LAKEKEEPER
def test_maintenance_is_waited_for_as_long_as_it_says(lake: Lake) -> None:
    subject = lake.subject()
    lake.double.maintenance = True
    waits_for_nothing(lake, subject)
    seconds, why = away(lake)
    assert 55 < seconds <= 60
    assert "MaintenanceModeError" in why
    lake.double.maintenance = False
    assert lake.finish(subject) == "done"
    lake.check_whole(subject, subject.new)
    assert away(lake) == []


@LAKEKEEPER
def test_no_table_is_gone_in_a_warehouse_that_was_deactivated(lake: Lake) -> None:
    subject, warehouse = lake.subject(), lake.double.warehouse(WAREHOUSE)
    warehouse.active, warehouse.fading = False, True
    waits_for_nothing(lake, subject)
    assert "not in sight" in away(lake)[1]
    warehouse.fading = False
    waits_for_nothing(lake, subject)
    warehouse.active = True
    assert lake.finish(subject) == "done"
    lake.check_whole(subject, subject.new)


@GRAVITINO
def test_an_unknown_user_is_one_fault_of_the_warehouse(lake: Lake) -> None:
    subjects = [lake.subject() for _ in range(2)]
    lake.double.users = frozenset({"somebody-else"})
    for subject in subjects:
        for _ in range(LONG):
            assert isinstance(attempt(lake, subject), Wait)
    assert [lake.row(subject)[0] for subject in subjects] == ["queued", "queued"]
    why = away(lake)[1]
    assert why.startswith(CREDENTIALS_REFUSED)
    assert "Current user anonymous doesn't exist" in why
    lake.double.users = None
    assert {lake.finish(subject) for subject in subjects} == {"done"}


@GRAVITINO
@pytest.mark.parametrize("status", [401, 403])
def test_one_table_that_is_refused_is_parked_alone(lake: Lake, status: int) -> None:
    refused, other = lake.subject(), lake.subject()
    lake.proxy.add(Rule(Kind.LOAD, refuse(status, error_type="Refused"), about=refused.old.name, times=None))
    ends = [attempt(lake, refused)]
    assert away(lake) == []
    while isinstance(ends[-1], Retry):
        ends.append(attempt(lake, refused))
    assert len(ends) == (MAX_ATTEMPTS if status == 401 else 1)
    parked = ends[-1]
    assert isinstance(parked, Park)
    assert parked.code == "forbidden"
    assert "only this table is refused" in parked.why
    assert away(lake) == []
    assert lake.finish(other) == "done"
