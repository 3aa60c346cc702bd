"""``reroot cancel``: what was ordered and has not begun leaves the ledger; what has begun stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import ledger
from tests.support.operator import Operator
from tests.support.place import Place
from worker.controlplane.ledger import PostgresControlPlane
from worker.moves.ports import Claimed

if TYPE_CHECKING:
    from tests.support.controlplane import ControlPlaneFixture

OPEN_ENTRY = (
    "INSERT INTO reroot.pointers (dataset_id, claim, action, namespace, table_name, warehouse, table_uuid,"
    " metadata_location, sequence_number) VALUES (%s, 1, 'register', 'sales.europe', 'x', 'w', 'u', 's3://m', 1)"
)


@pytest.fixture
def place(control_plane: ControlPlaneFixture) -> Place:
    return Place(control_plane)


@pytest.fixture
def operator(database: str, valkey: str) -> Operator:
    return Operator(database, valkey)


def states(place: Place) -> dict[str, str]:
    return dict(place.control_plane.execute("SELECT dataset_id, state FROM reroot.moves"))


def test_what_is_planned_and_not_begun_leaves_the_ledger(place: Place, operator: Operator) -> None:
    mistaken, wanted = place.datasets(2)
    operator.types("move", "--all")
    ended = operator.types("cancel", mistaken)
    assert (ended.code, ended.out, ended.err) == (0, "1 move cancelled.\n", "")
    assert states(place) == {wanted: "queued"}
    events = place.control_plane.execute(
        "SELECT event, transition, from_state, to_state, claim FROM reroot.move_events WHERE dataset_id = %s"
        " ORDER BY id DESC LIMIT 1",
        (mistaken,),
    )
    assert events == [("cancelled", "j", "queued", None, 1)]
    shown = operator.types("show", mistaken).out
    assert "can move" in shown
    assert "cancelled (j)  queued -> removed" in shown


def test_a_later_plan_never_gives_a_claim_twice(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    place.control_plane.execute("UPDATE reroot.moves SET claim = 7, attempts = 7")  # seven attempts that ended
    operator.types("cancel", dataset)
    operator.types("move", "--all")
    assert place.control_plane.execute("SELECT state, claim, attempts FROM reroot.moves") == [("queued", 8, 0)]


def test_an_attempt_that_looked_before_the_cancel_claims_nothing_after_it(
    place: Place, operator: Operator, database: str
) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    plane = PostgresControlPlane(database, worker="w", warehouse_for=lambda _: "lake", attempt_seconds=60)
    move = plane.peek(dataset)
    assert move is not None
    operator.types("cancel", dataset)
    operator.types("move", "--all")
    assert plane.claim(move) is None
    assert plane.peek(dataset) is not None
    plane.disconnect()


@pytest.mark.parametrize(
    ("begun", "says"),
    [
        ("UPDATE reroot.moves SET attempt_started_at = now() WHERE dataset_id = %s", "an attempt is running"),
        (OPEN_ENTRY, "a pointer of an earlier attempt may exist"),
        ("UPDATE reroot.moves SET given_up = 's3://m' WHERE dataset_id = %s", "a pointer of an earlier attempt"),
        ("UPDATE reroot.moves SET direction = 'back' WHERE dataset_id = %s", "queued to be taken back"),
        ("UPDATE reroot.moves SET state = 'flipped' WHERE dataset_id = %s", "not queued any more"),
    ],
    ids=["running", "open entry", "resolved", "going back", "flipped"],
)
def test_what_has_begun_stays_and_is_said(place: Place, operator: Operator, begun: str, says: str) -> None:
    dataset, other = place.datasets(2)
    operator.types("move", "--all")
    place.control_plane.execute(begun, (dataset,))
    before = place.control_plane.execute("SELECT * FROM reroot.moves WHERE dataset_id = %s", (dataset,))
    ended = operator.types("cancel", dataset)
    assert ended.code == 1
    assert f"{dataset}  {says}" in ended.out
    assert operator.types("cancel", "--all").code == (0 if says.startswith("not queued") else 1)
    assert place.control_plane.execute("SELECT * FROM reroot.moves WHERE dataset_id = %s", (dataset,)) == before
    assert other not in states(place)


def test_what_was_moved_and_taken_back_before_is_so_again(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    ledger.flip(place.control_plane, dataset)
    ledger.finish(place.control_plane, dataset)
    ledger.take_back(place.control_plane, dataset)
    place.control_plane.execute("UPDATE reroot.moves SET resolver_changed_at = now()")
    operator.types("move", "--all", "--again")
    assert states(place) == {dataset: "queued"}
    assert operator.types("cancel", dataset).code == 0
    assert place.control_plane.execute("SELECT state, direction FROM reroot.moves") == [("done", "back")]
    assert operator.types("move", "--all").code == 1


def test_a_scope_and_a_limit_bound_it(place: Place, operator: Operator, control_plane: ControlPlaneFixture) -> None:
    art = Place(control_plane, "Art")
    place.datasets(2)
    one, two, three = art.datasets(3)
    operator.types("move", "--all")
    ended = operator.types("cancel", "--all", "--catalog", "art", "--limit", "2")
    assert (ended.code, ended.out) == (0, "2 moves cancelled.\n")
    left = set(states(place))
    assert three in left
    assert not {one, two} & left
    assert len(left) == 3
    assert operator.types("cancel", "--all").code == 0
    assert states(place) == {}
    assert operator.types("cancel", "--all").code == 1  # nothing was


def test_whoever_waits_is_told_and_waits_no_longer(place: Place, operator: Operator, database: str) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    with operator.started("move", "--all", "--wait") as waiting:
        assert waiting.stderr is not None
        assert "No worker listens" in waiting.stderr.readline()
        operator.types("cancel", dataset)
        out, _ = waiting.communicate(timeout=60)
    assert "cancelled 1 in" in out
    assert waiting.returncode == 0


def test_a_claim_that_is_being_written_is_not_waited_for(
    place: Place, operator: Operator, control_plane: ControlPlaneFixture, database: str
) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    plane = PostgresControlPlane(database, worker="w", warehouse_for=lambda _: "lake", attempt_seconds=60)
    move = plane.peek(dataset)
    assert move is not None
    assert isinstance(plane.claim(move), Claimed)
    ended = operator.types("cancel", "--all")
    assert ended.code == 1
    assert "Not cancelled: 1 dataset, an attempt is running" in ended.out
    plane.disconnect()
