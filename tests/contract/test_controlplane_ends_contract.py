"""How attempts end and what is remembered, on every control plane: Postgres, and the in-memory twin of it.

What the proofs in memory rest on is held here against the real thing, guard by guard.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.plane_on_postgres import PostgresSubject
from tests.support.plane_story import NEW, OLD, PARK, claimed_by, ended, flip_to, flipped, pointer
from tests.support.plane_subjects import PLACE, PlaneSubject, TwinSubject
from worker.moves.machine import State
from worker.moves.ports import (
    Action,
    Closed,
    LockLostError,
    Pointer,
    Strategy,
    Written,
)
from worker.outcome import Busy, Retry, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.controlplane import ControlPlaneFixture


def gone_home(plane: PlaneSubject, dataset: str) -> None:
    """Flipped back to the legacy name, and the place withdrawn."""
    flipped(plane, dataset, flip_to(before=PLACE, after=None, left=NEW, live=OLD))
    adapter = plane.adapter()
    with adapter.lock(dataset, queue_for=None) as lock:
        assert lock is not None
        assert lock.finish(claimed_by(adapter, dataset), OLD, NEW) is Written.COMMITTED


class ControlPlaneEndsContract:
    """How attempts end, what an operator turns around, and what is remembered."""

    # The ends.

    def test_the_withdrawal_rewrites_the_rows_of_late_writers(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        flipped(plane, dataset)
        plane.add_log(dataset, str(OLD), 4712)
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed = claimed_by(adapter, dataset)
            with plane.holding(dataset, rows_of="iceberg_sync_log"):
                assert lock.finish(claimed, NEW, OLD) is Written.ROWS_BUSY
            assert lock.finish(claimed, NEW, OLD) is Written.COMMITTED
        assert plane.logged(dataset) == [str(NEW)] * 2
        assert plane.row(dataset).state == "done"
        assert plane.transitions(dataset)[-1] == ("d", "flipped", "done")

    @pytest.mark.parametrize(
        ("outcome", "attempts", "busy_count"),
        [(Retry(7, "no"), 1, 0), (Wait(7, "away"), 0, 0), (Busy(7, "rows"), 0, 1)],
    )
    def test_an_attempt_that_comes_again(
        self, plane: PlaneSubject, outcome: Retry | Wait | Busy, attempts: int, busy_count: int
    ) -> None:
        dataset = plane.dataset()
        ended(plane, dataset, outcome)
        row = plane.row(dataset)
        assert (row.state, row.attempts, row.busy_count, row.running) == ("queued", attempts, busy_count, False)
        assert 6 < row.due_in <= 7
        assert not plane.locked(dataset)

    @pytest.mark.parametrize(("is_flipped", "letter", "back"), [(False, "e", "g"), (True, "f", "h")])
    def test_parked_and_tried_again(self, plane: PlaneSubject, is_flipped: bool, letter: str, back: str) -> None:
        dataset = plane.dataset()
        state = "flipped" if is_flipped else "queued"
        if is_flipped:
            flipped(plane, dataset)
        ended(plane, dataset, PARK)
        assert (plane.row(dataset).state, plane.row(dataset).park_code) == ("parked", "diverged")
        claim = plane.row(dataset).claim
        assert plane.retry(dataset)
        assert not plane.retry(dataset)
        row = plane.row(dataset)
        assert (row.state, row.park_code, row.attempts, row.claim) == (state, None, 0, claim + 1)
        assert row.due_in <= 0
        assert plane.transitions(dataset)[-2:] == [(letter, state, "parked"), (back, "parked", state)]

    def test_an_operators_word_fences_the_attempt_that_runs(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        flipped(plane, dataset)
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed = claimed_by(adapter, dataset)
            assert plane.revert(dataset)
            assert lock.finish(claimed, NEW, OLD) is Written.SUPERSEDED
            assert not lock.end(claimed, PARK)

    # Turning around.

    @pytest.mark.parametrize("state", [State.FLIPPED, State.DONE])
    def test_a_revert_queues_the_way_back(self, plane: PlaneSubject, state: State) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        assert not plane.revert(dataset)
        flipped(plane, dataset, flip_to(state))
        assert plane.revert(dataset)
        assert not plane.revert(dataset)
        row = plane.row(dataset)
        assert (row.state, row.direction, row.flipped, row.running) == ("queued", "back", False, False)
        assert row.due_in <= 0
        assert plane.transitions(dataset)[-1] == ("i", state.value, "queued")
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            home = flip_to(State.FLIPPED, before=PLACE, after=None, left=NEW, live=OLD)
            assert lock.flip(claimed_by(adapter, dataset), home) is Written.COMMITTED
        assert plane.column(dataset) is None
        assert plane.logged(dataset) == [str(OLD)]
        assert plane.row(dataset).target_namespace == PLACE
        assert not plane.revert(dataset)

    @pytest.mark.parametrize("keep_new", [True, False])
    @pytest.mark.parametrize("is_flipped", [True, False])
    def test_a_divergence_is_decided(self, plane: PlaneSubject, keep_new: bool, is_flipped: bool) -> None:
        dataset = plane.dataset()
        assert not plane.resolve(dataset, keep_new=keep_new, lost_location="m9")
        if is_flipped:
            flipped(plane, dataset)
        ended(plane, dataset, PARK)
        assert plane.resolve(dataset, keep_new=keep_new, lost_location="m9")
        row = plane.row(dataset)
        stays = is_flipped and keep_new
        turns = is_flipped and not keep_new
        assert (row.state, row.given_up, row.park_code) == ("flipped" if stays else "queued", "m9", None)
        assert row.direction == ("back" if turns else "out")
        assert row.flipped is stays
        assert row.old_location == ("m9" if keep_new else "m1" if is_flipped else None)
        assert plane.transitions(dataset)[-1][0] == ("h" if stays else "i" if turns else "g")

    @pytest.mark.parametrize("keep_new", [True, False])
    @pytest.mark.parametrize("is_flipped", [True, False])
    def test_a_divergence_from_an_earlier_target_is_decided(
        self, plane: PlaneSubject, keep_new: bool, is_flipped: bool
    ) -> None:
        dataset = plane.dataset()
        if is_flipped:
            flipped(plane, dataset)
        ended(plane, dataset, replace(PARK, beside="asia.tokyo"))
        turns = is_flipped and not keep_new
        assert plane.resolve(dataset, keep_new=keep_new, lost_location="m9") is not turns
        row = plane.row(dataset)
        moved_on = keep_new and not is_flipped
        assert (row.state, row.direction) == ("parked" if turns else "flipped" if is_flipped else "queued", "out")
        assert row.target_namespace == ("asia.tokyo" if moved_on else PLACE)
        assert row.old_location == ("m9" if moved_on else "m1" if is_flipped else None)
        assert row.given_up == (None if turns else "m9")

    def test_what_was_decided_for_the_old_side_is_planned_anew_when_the_other_is_gone(
        self, plane: PlaneSubject
    ) -> None:
        dataset = plane.dataset()
        flipped(plane, dataset)
        ended(plane, dataset, PARK)
        assert plane.resolve(dataset, keep_new=False, lost_location="m9")
        gone_home(plane, dataset)
        row = plane.row(dataset)
        assert (row.state, row.direction, row.given_up, row.table_uuid) == ("queued", "out", None, None)
        assert plane.transitions(dataset)[-2:] == [("d", "flipped", "done"), ("i", "done", "queued")]

    def test_a_divergence_on_the_way_back_is_decided_and_the_way_stays(self, plane: PlaneSubject) -> None:
        dataset = plane.dataset()
        flipped(plane, dataset)
        assert plane.revert(dataset)
        ended(plane, dataset, PARK)
        assert plane.resolve(dataset, keep_new=True, lost_location="m9")
        gone_home(plane, dataset)
        row = plane.row(dataset)
        assert (row.state, row.direction) == ("done", "back")

    # The journal.

    def test_an_attempt_whose_claim_was_taken_over_opens_no_entry(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        stood_still = claimed_by(adapter, dataset)
        claimed_by(plane.adapter("worker-2"), dataset)
        with pytest.raises(LockLostError):
            adapter.journal(stood_still, Action.RENAME, pointer())
        assert plane.entries(dataset) == []

    def test_an_entry_is_there_until_it_is_closed_and_its_first_end_stays(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        claimed = claimed_by(adapter, dataset)
        first = adapter.journal(claimed, Action.REGISTER, pointer())
        second = adapter.journal(claimed, Action.WITHDRAW, pointer(OLD, "m2"))
        assert first.id != second.id
        assert claimed_by(adapter, dataset).entries == (first, second)
        assert adapter.open_entries(claimed) == (first, second)
        adapter.close(second, Closed.WITHDRAWN)
        adapter.close(second, Closed.VOID)
        assert adapter.open_entries(claimed) == (first,)
        assert claimed_by(adapter, dataset).entries == (first,)
        assert plane.entries(dataset) == [("register", None), ("withdraw", "withdrawn")]

    def test_the_ledger_keeps_the_first_uuid(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        claimed = claimed_by(adapter, dataset)
        adapter.journal(claimed, Action.REGISTER, pointer())
        adapter.journal(claimed, Action.REGISTER, Pointer(NEW, "another", "m2", 8))
        assert plane.row(dataset).table_uuid == "u"

    @pytest.mark.parametrize("died", [True, False])
    @pytest.mark.parametrize("action", Action)
    def test_an_open_rename_and_a_withdrawal_that_died_come_before_every_other(
        self, plane: PlaneSubject, action: Action, *, died: bool
    ) -> None:
        adapter, other, dataset = plane.adapter(), plane.dataset(), plane.dataset()
        claimed = claimed_by(adapter, dataset)
        adapter.journal(claimed, action, pointer())
        if not died:
            ended(plane, dataset, Retry(20, "later"))
            assert not plane.sweep(dataset), "it waits as long as it said"
            plane.pass_time(21)
        assert plane.sweep(dataset)
        urgent = action is Action.RENAME or (action is Action.WITHDRAW and died)
        for each in (other, dataset):
            move = adapter.peek(each)
            assert move is not None
            assert move.urgent == (dataset if urgent else None)
        assert [adapter.take(dataset), adapter.take(dataset)] == [urgent, False], "one takes it"
        move = adapter.peek(other)
        assert move is not None
        assert move.urgent is None

    @pytest.mark.parametrize(("action", "longest"), [(Action.RENAME, 10), (Action.WITHDRAW, 300)])
    def test_a_dataset_whose_rename_may_have_happened_waits_for_seconds_at_most(
        self, plane: PlaneSubject, action: Action, longest: float
    ) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        adapter.journal(claimed_by(adapter, dataset), action, pointer())
        for after, waits in ((300, longest), (7, 7)):
            ended(plane, dataset, Retry(after, "later"))
            assert plane.row(dataset).due_in == pytest.approx(waits, abs=1)

    @pytest.mark.parametrize("by", ["claim", "busy"])
    def test_what_was_begun_is_urgent_no_more(self, plane: PlaneSubject, by: str) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        adapter.journal(claimed_by(adapter, dataset), Action.RENAME, pointer())
        assert plane.sweep(dataset)
        move = adapter.peek(dataset)
        assert move is not None
        if by == "claim":
            assert adapter.claim(move) is not None
        else:
            adapter.note_busy(move, 5)
        move = adapter.peek(dataset)
        assert move is not None
        assert move.urgent is None

    # The sweeper.

    def test_what_is_due_is_sent_once(self, plane: PlaneSubject) -> None:
        dataset = plane.dataset()
        assert plane.sweep(dataset)
        assert not plane.sweep(dataset)
        plane.pass_time(121)
        assert plane.sweep(dataset)

    def test_what_waits_is_sent_when_its_time_has_come(self, plane: PlaneSubject) -> None:
        dataset = plane.dataset()
        flipped(plane, dataset)
        assert not plane.sweep(dataset)
        plane.pass_time(901)
        assert plane.sweep(dataset)

    def test_an_attempt_that_died_is_found_and_one_that_runs_is_left_alone(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed_by(adapter, dataset)
            assert not plane.sweep(dataset)
        assert plane.sweep(dataset)

    def test_an_attempt_that_died_is_found_while_a_writer_holds_the_lock(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed_by(adapter, dataset)
        with plane.holding(dataset):
            assert plane.sweep(dataset)
            move = adapter.peek(dataset)
            assert move is not None
            adapter.note_busy(move, 5)
            row = plane.row(dataset)
            assert (row.busy_count, row.published) == (1, False)
            assert not plane.sweep(dataset)
            plane.pass_time(6)
            assert plane.sweep(dataset)

    def test_what_is_parked_is_never_sent(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        adapter.journal(claimed_by(adapter, dataset), Action.WITHDRAW, pointer(OLD))
        ended(plane, dataset, PARK)
        plane.pass_time(1_000)
        assert not plane.sweep(dataset)

    # Warehouses.

    def test_a_warehouse_that_is_away_is_asked_by_one(self, plane: PlaneSubject) -> None:
        adapter, first, second = plane.adapter(), plane.dataset(), plane.dataset()
        for dataset in (first, second):
            warehouse = claimed_by(adapter, dataset).dataset.warehouse
        adapter.warehouse_away(warehouse, 20, "503")
        away = claimed_by(adapter, first)
        assert away.away_for is not None
        assert 19 < away.away_for <= 20
        assert not plane.sweep(first)
        plane.pass_time(21)
        assert sorted([plane.sweep(first), plane.sweep(second)]) == [False, True]
        probe = claimed_by(adapter, first)
        assert (probe.away_for, probe.probing) == (None, True)
        other = claimed_by(adapter, second)
        assert other.away_for is not None
        assert other.away_for == pytest.approx(15, abs=1)
        adapter.warehouse_back(warehouse)
        assert claimed_by(adapter, second).away_for is None

    def test_a_strategy_is_remembered_and_gives_way_to_an_operator(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        claimed = claimed_by(adapter, dataset)
        assert (claimed.strategy, claimed.strategy_set) == (None, False)
        adapter.note_strategy(claimed.dataset.warehouse, Strategy.RENAME, "seen")
        claimed = claimed_by(adapter, dataset)
        assert (claimed.strategy, claimed.strategy_set) == (Strategy.RENAME, False)
        plane.set_strategy(Strategy.REGISTER)
        adapter.note_strategy(claimed.dataset.warehouse, Strategy.RENAME, "seen")
        claimed = claimed_by(adapter, dataset)
        assert (claimed.strategy, claimed.strategy_set) == (Strategy.REGISTER, True)

    def test_refusals_are_counted_by_dataset(self, plane: PlaneSubject) -> None:
        adapter, first, second = plane.adapter(), plane.dataset(), plane.dataset()
        one, two = claimed_by(adapter, first), claimed_by(adapter, second)
        assert [adapter.note_refusal(each) for each in (one, one, two, one)] == [1, 1, 2, 2]


class TestTwin(ControlPlaneEndsContract):
    @pytest.fixture
    def plane(self) -> PlaneSubject:
        return TwinSubject()


@pytest.mark.every_postgres
class TestPostgres(ControlPlaneEndsContract):
    @pytest.fixture
    def plane(self, database: str, control_plane: ControlPlaneFixture) -> Iterator[PlaneSubject]:
        subject = PostgresSubject(database, control_plane)
        yield subject
        subject.close()
