"""One suite for every control plane that ``worker.moves`` works with: Postgres, and the in-memory twin of it.

What the proofs in memory rest on is held here against the real thing, guard by guard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.plane_on_postgres import PostgresSubject
from tests.support.plane_subjects import NAME, PLACE, SNAPSHOT, PlaneSubject, TwinSubject
from worker.identifiers import LEGACY_NAMESPACE, TableIdentifier
from worker.moves.machine import State
from worker.moves.ports import (
    Action,
    Claimed,
    Closed,
    ControlPlane,
    Flip,
    Lock,
    LockLostError,
    Pointer,
    Strategy,
    Written,
)
from worker.outcome import Busy, Park, ParkCode, Retry, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.controlplane import ControlPlaneFixture

OLD = TableIdentifier((LEGACY_NAMESPACE,), NAME)
NEW = TableIdentifier.within(PLACE, NAME)
PARK = Park(ParkCode.DIVERGED, "both moved", "compare them")


def flip_to(
    state: State = State.FLIPPED,
    *,
    before: str | None = None,
    after: str | None = PLACE,
    left: TableIdentifier = OLD,
    live: TableIdentifier = NEW,
    entries: tuple[int, ...] = (),
) -> Flip:
    return Flip(before, after, left, live, state, "u", "m1", 7, SNAPSHOT, 10, 900.0, entries)


def pointer(identifier: TableIdentifier = NEW, location: str = "m1") -> Pointer:
    return Pointer(identifier, "u", location, 7)


def claimed_by(adapter: ControlPlane, dataset: str) -> Claimed:
    """A claim, as an attempt makes it under the lock."""
    move = adapter.peek(dataset)
    assert move is not None
    claimed = adapter.claim(move)
    assert claimed is not None
    return claimed


def flipped(plane: PlaneSubject, dataset: str, flip: Flip | None = None) -> None:
    """Bring the dataset to the end of its first attempt."""
    adapter = plane.adapter()
    with adapter.lock(dataset, queue_for=None) as lock:
        assert lock is not None
        assert lock.flip(claimed_by(adapter, dataset), flip or flip_to()) is Written.COMMITTED


def ended(plane: PlaneSubject, dataset: str, outcome: Park | Retry | Wait | Busy) -> None:
    adapter = plane.adapter()
    with adapter.lock(dataset, queue_for=None) as lock:
        assert lock is not None
        assert lock.end(claimed_by(adapter, dataset), outcome)


class ControlPlaneContract:
    """Every test here runs on each control plane."""

    # Peek and claim.

    def test_a_queued_dataset_is_due_and_an_unknown_one_is_none(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        move = adapter.peek(dataset)
        assert move is not None
        assert (move.state, move.due, move.running, move.claim, move.attempts) == (State.QUEUED, True, False, 0, 0)
        assert (move.source_namespace, move.target_namespace, move.table_name) == (LEGACY_NAMESPACE, PLACE, NAME)
        assert move.target_named_ago is None
        assert adapter.peek("nobody") is None

    def test_a_claim_is_made_once_for_what_was_peeked(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        move = adapter.peek(dataset)
        assert move is not None
        assert adapter.claim(move) is not None
        assert adapter.claim(move) is None
        row = plane.row(dataset)
        assert (row.claim, row.attempts, row.running, row.published) == (1, 1, True, False)

    def test_a_claim_reads_the_dataset_afresh(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        found = claimed_by(adapter, dataset).dataset
        assert (found.exists, found.iceberg_namespace, found.place) == (True, None, PLACE)
        assert found.last_snapshot_id == SNAPSHOT
        plane.add_log(dataset, str(OLD), 4712)
        plane.set_column(dataset, "else.where")
        plane.take_schema(dataset)
        found = claimed_by(adapter, dataset).dataset
        assert (found.iceberg_namespace, found.place, found.no_place) == ("else.where", None, ParkCode.NO_PLACE)
        assert found.last_snapshot_id == 4712
        plane.delete(dataset)
        found = claimed_by(adapter, dataset).dataset
        assert (found.exists, found.last_snapshot_id) == (False, None)

    def test_the_resolver_is_asked_at_this_instant(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        claimed = claimed_by(adapter, dataset)
        assert adapter.live_namespace(claimed) == LEGACY_NAMESPACE
        plane.set_column(dataset, PLACE)
        assert adapter.live_namespace(claimed) == PLACE
        plane.delete(dataset)
        assert adapter.live_namespace(claimed) is None

    # The lock.

    def test_one_holds_the_lock(self, plane: PlaneSubject) -> None:
        first, second, dataset, another = plane.adapter(), plane.adapter("worker-2"), plane.dataset(), plane.dataset()
        with first.lock(dataset, queue_for=None) as held:
            assert held is not None
            held.alive()
            with second.lock(dataset, queue_for=None) as refused:
                assert refused is None
            with second.lock(another, queue_for=None) as free:
                assert free is not None
        assert not plane.locked(dataset)

    @pytest.mark.parametrize("queue_for", [None, 0.1])
    def test_another_program_holds_the_lock(self, plane: PlaneSubject, queue_for: float | None) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        with plane.holding(dataset), adapter.lock(dataset, queue_for=queue_for) as lock:
            assert lock is None
        with adapter.lock(dataset, queue_for=queue_for) as lock:
            assert lock is not None

    def test_a_busy_lock_is_noted_where_nothing_of_ours_runs(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        move = adapter.peek(dataset)
        assert move is not None
        adapter.note_busy(move, 5)
        adapter.note_busy(move, 5)
        row = plane.row(dataset)
        assert (row.busy_count, row.busy, row.attempts) == (2, True, 0)
        assert 4 < row.due_in <= 5
        claimed_by(adapter, dataset)
        for stale in (move, adapter.peek(dataset)):
            assert stale is not None
            adapter.note_busy(stale, 500)
        assert plane.row(dataset).due_in <= 5

    def test_a_lost_connection_is_told_by_every_question(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed = claimed_by(adapter, dataset)
            plane.cut(dataset)
            for ask in (
                lock.alive,
                lambda: lock.reserve(claimed, flip_to(), idle_seconds=15),
                lambda: lock.flip(claimed, flip_to()),
                lambda: lock.finish(claimed, NEW, OLD),
                lambda: lock.end(claimed, PARK),
            ):
                with pytest.raises(LockLostError):
                    ask()
        assert plane.column(dataset) is None
        assert plane.row(dataset).state == "queued"
        assert plane.transitions(dataset) == []
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None

    def test_silence_ends_the_lock_and_frees_what_it_held(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(attempt_seconds=-29.5), plane.dataset()
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            plane.wait_for_idle_end(dataset)
            with pytest.raises(LockLostError):
                lock.alive()

    def test_a_reservation_shortens_the_leash(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            assert lock.reserve(claimed_by(adapter, dataset), flip_to(State.DONE), idle_seconds=0.5) is None
            plane.wait_for_idle_end(dataset)
            with pytest.raises(LockLostError):
                lock.alive()
        flipped(plane, dataset)

    # The flip, and what may be written instead.

    @pytest.mark.parametrize(("state", "letter"), [(State.FLIPPED, "b"), (State.DONE, "c")])
    def test_column_log_and_ledger_change_together(self, plane: PlaneSubject, state: State, letter: str) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed = claimed_by(adapter, dataset)
            entry = adapter.journal(claimed, Action.REGISTER, pointer())
            assert lock.flip(claimed, flip_to(state, entries=(entry.id,))) is Written.COMMITTED
            assert not plane.locked(dataset)
        assert plane.column(dataset) == PLACE
        assert plane.logged(dataset) == [str(NEW)]
        assert plane.entries(dataset) == [("register", "kept")]
        assert plane.transitions(dataset) == [(letter, "queued", state.value)]
        row = plane.row(dataset)
        assert (row.state, row.attempts, row.running, row.flipped) == (state.value, 0, False, True)
        assert (row.table_uuid, row.old_location, row.old_sequence_number) == ("u", "m1", 7)
        assert 890 < row.due_in <= 900
        move = adapter.peek(dataset)
        assert move is not None
        assert move.target_named_ago is not None
        assert not move.due

    def test_only_rows_under_the_name_that_is_left_are_rewritten(self, plane: PlaneSubject) -> None:
        dataset = plane.dataset()
        plane.add_log(dataset, "elsewhere.datasets.x", 1)
        flipped(plane, dataset)
        assert sorted(plane.logged(dataset)) == ["elsewhere.datasets.x", str(NEW)]

    def test_a_column_that_another_hand_has_set_is_not_overwritten(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed = claimed_by(adapter, dataset)
            plane.set_column(dataset, "else.where")
            assert lock.reserve(claimed, flip_to(), idle_seconds=15) is Written.COLUMN_SET
            assert lock.flip(claimed, flip_to()) is Written.COLUMN_SET
            assert lock.end(claimed, Retry(5, "the column was set"))
        assert plane.column(dataset) == "else.where"
        assert plane.logged(dataset) == [str(OLD)]
        assert plane.row(dataset).state == "queued"

    def test_a_column_that_is_there_already_is_only_checked(self, plane: PlaneSubject) -> None:
        dataset = plane.dataset()
        plane.set_column(dataset, PLACE)
        flipped(plane, dataset, flip_to(before=PLACE))
        assert plane.logged(dataset) == [str(NEW)]

    def test_a_dataset_that_is_gone_has_no_column(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        plane.delete(dataset)
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            assert lock.flip(claimed_by(adapter, dataset), flip_to()) is Written.COLUMN_SET

    @pytest.mark.parametrize("rows_of", ["datasets", "iceberg_sync_log"])
    def test_rows_that_somebody_holds_are_not_waited_for(self, plane: PlaneSubject, rows_of: str) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed = claimed_by(adapter, dataset)
            with plane.holding(dataset, rows_of=rows_of):
                assert lock.reserve(claimed, flip_to(), idle_seconds=15) is Written.ROWS_BUSY
                assert lock.flip(claimed, flip_to()) is Written.ROWS_BUSY
            assert plane.column(dataset) is None
            assert lock.flip(claimed, flip_to()) is Written.COMMITTED

    def test_a_reservation_checks_and_a_flip_follows(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed = claimed_by(adapter, dataset)
            entry = adapter.journal(claimed, Action.RENAME, pointer())
            assert lock.reserve(claimed, flip_to(State.DONE), idle_seconds=15) is None
            assert lock.flip(claimed, flip_to(State.DONE, entries=(entry.id,))) is Written.COMMITTED
        assert plane.entries(dataset) == [("rename", "kept")]

    @pytest.mark.parametrize("write", ["reserve", "flip", "finish", "end"])
    def test_a_zombie_writes_nothing(self, plane: PlaneSubject, write: str) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        if write == "finish":
            flipped(plane, dataset)
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed = claimed_by(adapter, dataset)
            claimed_by(plane.adapter("worker-2"), dataset)
            before = plane.row(dataset).state, plane.column(dataset), plane.transitions(dataset)
            assert self._write(lock, claimed, write) in {Written.SUPERSEDED, False}
        assert (plane.row(dataset).state, plane.column(dataset), plane.transitions(dataset)) == before

    @staticmethod
    def _write(lock: Lock, claimed: Claimed, write: str) -> object:
        match write:
            case "reserve":
                return lock.reserve(claimed, flip_to(), idle_seconds=15)
            case "flip":
                return lock.flip(claimed, flip_to())
            case "finish":
                return lock.finish(claimed, NEW, OLD)
            case _:
                return lock.end(claimed, PARK)

    def test_a_state_that_is_no_longer_the_claimed_one_is_not_left(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed = claimed_by(adapter, dataset)
            assert lock.finish(claimed, NEW, OLD) is Written.SUPERSEDED
        flipped(plane, dataset)
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            assert lock.flip(claimed_by(adapter, dataset), flip_to()) is Written.SUPERSEDED

    def test_what_was_not_committed_leaves_with_the_lock(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            assert lock.reserve(claimed_by(adapter, dataset), flip_to(), idle_seconds=15) is None
        flipped(plane, dataset)

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
        assert row.old_location == ("m9" if stays else "m1" if is_flipped else None)
        assert plane.transitions(dataset)[-1][0] == ("h" if stays else "i" if turns else "g")

    def test_what_was_decided_for_the_old_side_is_planned_anew_when_the_other_is_gone(
        self, plane: PlaneSubject
    ) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        flipped(plane, dataset)
        ended(plane, dataset, PARK)
        assert plane.resolve(dataset, keep_new=False, lost_location="m9")
        flipped(plane, dataset, flip_to(before=PLACE, after=None, left=NEW, live=OLD))
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            assert lock.finish(claimed_by(adapter, dataset), OLD, NEW) is Written.COMMITTED
        row = plane.row(dataset)
        assert (row.state, row.direction, row.given_up, row.table_uuid) == ("queued", "out", None, None)
        assert plane.transitions(dataset)[-2:] == [("d", "flipped", "done"), ("i", "done", "queued")]

    # The journal.

    def test_an_entry_is_there_until_it_is_closed_and_its_first_end_stays(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        claimed = claimed_by(adapter, dataset)
        first = adapter.journal(claimed, Action.REGISTER, pointer())
        second = adapter.journal(claimed, Action.WITHDRAW, pointer(OLD, "m2"))
        assert first.id != second.id
        assert claimed_by(adapter, dataset).entries == (first, second)
        adapter.close(second, Closed.WITHDRAWN)
        adapter.close(second, Closed.VOID)
        assert claimed_by(adapter, dataset).entries == (first,)
        assert plane.entries(dataset) == [("register", None), ("withdraw", "withdrawn")]

    def test_the_ledger_keeps_the_first_uuid(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        claimed = claimed_by(adapter, dataset)
        adapter.journal(claimed, Action.REGISTER, pointer())
        adapter.journal(claimed, Action.REGISTER, Pointer(NEW, "another", "m2", 8))
        assert plane.row(dataset).table_uuid == "u"

    @pytest.mark.parametrize("action", Action)
    def test_an_open_rename_or_withdrawal_is_due_at_once(self, plane: PlaneSubject, action: Action) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        flipped(plane, dataset)
        entry = adapter.journal(claimed_by(adapter, dataset), action, pointer())
        urgent = action is not Action.REGISTER
        move = adapter.peek(dataset)
        assert move is not None
        assert move.due is urgent
        assert plane.sweep(dataset) is urgent
        adapter.close(entry, Closed.VOID)
        move = adapter.peek(dataset)
        assert move is not None
        assert not move.due

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


class TestTwin(ControlPlaneContract):
    @pytest.fixture
    def plane(self) -> PlaneSubject:
        return TwinSubject()


@pytest.mark.every_postgres
class TestPostgres(ControlPlaneContract):
    @pytest.fixture
    def plane(self, database: str, control_plane: ControlPlaneFixture) -> Iterator[PlaneSubject]:
        subject = PostgresSubject(database, control_plane)
        yield subject
        subject.close()
