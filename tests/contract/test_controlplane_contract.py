"""One suite for every control plane that ``worker.moves`` works with: Postgres, and the in-memory twin of it.

What the proofs in memory rest on is held here against the real thing, guard by guard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.plane_on_postgres import PostgresSubject
from tests.support.plane_story import NEW, OLD, PARK, claimed_by, flip_to, flipped, pointer
from tests.support.plane_subjects import NAME, PLACE, SNAPSHOT, PlaneSubject, TwinSubject
from worker.identifiers import LEGACY_NAMESPACE
from worker.moves.machine import State
from worker.moves.ports import (
    Action,
    Claimed,
    Closed,
    Lock,
    LockLostError,
    Written,
)
from worker.outcome import ParkCode, Retry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.controlplane import ControlPlaneFixture


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
        assert (found.last_snapshot_id, found.last_identifier) == (SNAPSHOT, str(OLD))
        plane.add_log(dataset, str(OLD), 4712)
        plane.set_column(dataset, "else.where")
        plane.take_schema(dataset)
        found = claimed_by(adapter, dataset).dataset
        assert (found.iceberg_namespace, found.place, found.no_place) == ("else.where", None, ParkCode.NO_PLACE)
        assert found.last_snapshot_id == 4712
        plane.delete(dataset)
        found = claimed_by(adapter, dataset).dataset
        assert (found.exists, found.last_snapshot_id, found.last_identifier) == (False, None, None)

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
        with adapter.lock(dataset, queue_for=None):
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
                lock.commit,
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

    def test_a_reservation_is_the_whole_flip_and_nobody_sees_it_before_its_commit(self, plane: PlaneSubject) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed = claimed_by(adapter, dataset)
            entry = adapter.journal(claimed, Action.RENAME, pointer())
            assert lock.reserve(claimed, flip_to(State.DONE, entries=(entry.id,)), idle_seconds=15) is None
            assert (plane.column(dataset), plane.logged(dataset), plane.transitions(dataset)) == (None, [str(OLD)], [])
            lock.commit()
        assert (plane.column(dataset), plane.logged(dataset)) == (PLACE, [str(NEW)])
        assert plane.entries(dataset) == [("rename", "kept")]
        assert plane.transitions(dataset) == [("c", "queued", "done")]
        assert plane.row(dataset).state == "done"

    @pytest.mark.parametrize("write", ["nothing", "flip", "end"])
    def test_a_reservation_that_is_given_back_leaves_nothing(self, plane: PlaneSubject, write: str) -> None:
        adapter, dataset = plane.adapter(), plane.dataset()
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            claimed = claimed_by(adapter, dataset)
            entry = adapter.journal(claimed, Action.RENAME, pointer())
            assert lock.reserve(claimed, flip_to(State.DONE, entries=(entry.id,)), idle_seconds=15) is None
            if write == "nothing":
                lock.give_back()
                lock.give_back()
                adapter.close(entry, Closed.VOID)
                lock.alive()
                assert lock.end(claimed, PARK)
            elif write == "end":
                assert lock.end(claimed, PARK)
            else:
                assert lock.flip(claimed, flip_to()) is Written.COMMITTED
        assert plane.row(dataset).state == ("flipped" if write == "flip" else "parked")
        assert plane.column(dataset) == (PLACE if write == "flip" else None)
        assert plane.logged(dataset) == [str(NEW if write == "flip" else OLD)]
        assert plane.entries(dataset) == [("rename", "void" if write == "nothing" else None)]
        assert [letter for letter, _, _ in plane.transitions(dataset)] == ["b" if write == "flip" else "e"]

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

    def test_a_commit_sends_no_statement(self, plane: PlaneSubject, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many log rows a dataset has: readers miss the table from the rename to this commit."""
        adapter, dataset = plane.adapter(), plane.dataset()
        sent: list[str] = []
        with adapter.lock(dataset, queue_for=None) as lock:
            assert lock is not None
            assert lock.reserve(claimed_by(adapter, dataset), flip_to(State.DONE), idle_seconds=15) is None
            with monkeypatch.context() as watching:
                watching.setattr(psycopg.Cursor, "execute", lambda _, statement, *__, **___: sent.append(statement))
                lock.commit()
        assert sent == []
        assert plane.logged(dataset) == [str(NEW)]
