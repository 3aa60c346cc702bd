"""Moves in a Gravitino metalake with authorization: by a user who owns nothing, and of tables with odd names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.test_move_on_temperaments import WAREHOUSE, Lake
from tests.support.fault_proxy import FaultProxy
from tests.support.rest_double import TEMPERAMENTS, Kind, RestDouble
from tests.support.rest_double.privileges import Privileges
from worker.controlplane import warehouses
from worker.controlplane.connection import connect
from worker.moves.ports import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.test_move_on_temperaments import Subject
    from tests.support.controlplane import ControlPlaneFixture

BOTH = ["gravitino-1.2-authorization", "gravitino-1.3-authorization"]
USER, WRITER = "reroot", "anonymous"


@pytest.fixture(params=BOTH)
def lake(
    request: pytest.FixtureRequest, database: str, control_plane: ControlPlaneFixture, tmp_path: Path
) -> Iterator[Lake]:
    """Its tables are the writer's; Reroot's user has every privilege of the catalog, and owns nothing."""
    with RestDouble(TEMPERAMENTS[request.param]) as double, FaultProxy(double.uri) as proxy:
        lake = Lake(database, control_plane, double, proxy, tmp_path / "warehouse", user=USER)
        double.privileges = Privileges({WRITER}, {USER: {"*"}})
        yield lake
        lake.close()


def say(lake: Lake, strategy: Strategy) -> None:
    with connect(lake.database, role="operator") as connection:
        warehouses.set_strategy(connection, WAREHOUSE, strategy)


def stands_untouched(lake: Lake, subject: Subject) -> None:
    lake.check_whole(subject, subject.old)
    assert lake.plane.iceberg_namespace(subject.id) is None
    open_entries = "SELECT action FROM reroot.pointers WHERE dataset_id = %s AND closed_at IS NULL"
    assert lake.plane.execute(open_entries, (subject.id,)) == []


@pytest.mark.parametrize("strategy", Strategy)
def test_a_user_who_may_not_withdraw_flips_nothing(lake: Lake, strategy: Strategy) -> None:
    """He may register and load, and neither rename nor drop what he does not own."""
    say(lake, strategy)
    for subject in (lake.subject(), lake.subject()):
        assert lake.finish(subject) == "parked"
        _, code, text = lake.row(subject)
        assert code == "forbidden"
        assert "not authorized to perform operation 'renameTable'" in text
        stands_untouched(lake, subject)


def test_an_owner_is_asked_once_and_moves(lake: Lake) -> None:
    say(lake, Strategy.REGISTER)
    assert lake.double.privileges is not None
    lake.double.privileges.owners.add(USER)
    for asked in (1, 0):
        subject = lake.subject()
        before = lake.proxy.requests[Kind.RENAME]
        assert lake.finish(subject) == "done", lake.row(subject)
        assert lake.proxy.requests[Kind.RENAME] - before == 1 + asked  # the fence is a rename, too
        lake.check_whole(subject, subject.new)


def test_once_a_withdrawal_was_forbidden_each_table_is_asked_for(lake: Lake) -> None:
    """Ownership is a table's: the first one is ours, the others are not."""
    say(lake, Strategy.REGISTER)
    mine, others = lake.subject(), [lake.subject() for _ in range(3)]
    row = lake.double.row(WAREHOUSE, mine.old)
    assert row is not None
    row.owner = USER
    assert lake.finish(mine) == "done", lake.row(mine)
    ends = [lake.finish(subject) for subject in others]
    assert ends == ["parked"] * 3
    flipped = [lake.plane.iceberg_namespace(subject.id) is not None for subject in others]
    assert flipped == [True, False, False]
    for subject in others[1:]:
        stands_untouched(lake, subject)


@pytest.mark.parametrize("lake", BOTH[:1], indirect=True)
def test_a_place_of_which_only_the_first_level_is_allowed_is_found_before_the_table_moves(lake: Lake) -> None:
    """1.2 authorizes a rename by the first level, and a load by the last."""
    say(lake, Strategy.RENAME)
    subject = lake.subject()
    assert lake.double.privileges is not None
    lake.double.privileges.schemas[USER] = {subject.old.namespace[0], subject.new.namespace[0]}
    row = lake.double.row(WAREHOUSE, subject.old)
    assert row is not None
    row.owner = USER
    assert lake.finish(subject) == "parked"
    _, code, text = lake.row(subject)
    assert (code, f"may not read {subject.new}" in text) == ("forbidden", True)
    assert lake.proxy.requests[Kind.RENAME] == 0
    stands_untouched(lake, subject)


@pytest.mark.parametrize("strategy", Strategy)
def test_a_hidden_name_ends_where_it_was(lake: Lake, strategy: Strategy) -> None:
    say(lake, strategy)
    assert lake.double.privileges is not None
    lake.double.privileges.owners.add(USER)
    subject = lake.subject("snapshots")
    assert lake.finish(subject) == "parked"
    assert lake.row(subject)[1] == "name_hidden"
    stands_untouched(lake, subject)


def test_a_long_name_goes_along_although_the_rename_answers_500(lake: Lake) -> None:
    say(lake, Strategy.RENAME)
    assert lake.double.privileges is not None
    lake.double.privileges.owners.add(USER)
    subject = lake.subject("x" * 200)
    assert lake.finish(subject) == "done", lake.row(subject)
    lake.check_whole(subject, subject.new)
    assert lake.proxy.answers[Kind.RENAME, 500] == 1
