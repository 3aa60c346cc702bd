"""Moves that are taken back, and divergences that a person decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.stage import raising
from worker.controlplane import reversal
from worker.controlplane.reversal import Keep
from worker.identifiers import TableIdentifier
from worker.moves.ports import Strategy
from worker.outcome import Done, Park, ParkCode, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.stage import Stage, Subject

pytestmark = pytest.mark.every_postgres


@pytest.fixture
def operator(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def revert(stage: Stage, operator: psycopg.Connection, subject: Subject) -> None:
    assert reversal.revert_datasets(operator, [subject.id]) == [subject.id]
    assert stage.row(subject)["state"] == "queued"


def flipped_long_ago(stage: Stage, subject: Subject) -> None:
    """The grace since the last change of the resolver's mind is over."""
    stage.execute("UPDATE reroot.moves SET resolver_changed_at = now() - interval '1 day'")
    stage.pass_time(subject)


class TestRevert:
    def test_a_done_move_goes_back_by_the_same_machine(self, stage: Stage, operator: psycopg.Connection) -> None:
        subject = stage.subject()
        assert stage.finish(subject) == "done"
        stage.catalog.commit(subject.new)
        revert(stage, operator, subject)
        assert stage.attempt(subject) == Done("flipped")
        assert stage.live(subject) == subject.old
        assert stage.pointers(subject) == {subject.old, subject.new}
        assert stage.finish(subject) == "done"
        assert stage.pointers(subject) == {subject.old}
        assert stage.catalog.load(subject.old).row_count == 11
        assert stage.control_plane.logged_identifiers(subject.id) == [str(subject.old)]
        assert stage.row(subject)["direction"] == "back"

    def test_a_flipped_move_whose_old_pointer_still_fits_flips_back_at_once(
        self, stage: Stage, operator: psycopg.Connection
    ) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        revert(stage, operator, subject)
        stage.catalog.calls.clear()
        assert stage.attempt(subject) == Done("flipped")
        assert "register" not in stage.methods()
        assert stage.live(subject) == subject.old
        assert stage.finish(subject) == "done"
        assert stage.pointers(subject) == {subject.old}

    def test_an_old_pointer_that_fell_behind_waits_for_its_readers(
        self, stage: Stage, operator: psycopg.Connection
    ) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        stage.catalog.commit(subject.new)
        revert(stage, operator, subject)
        outcome = stage.attempt(subject)
        assert isinstance(outcome, Wait)
        assert outcome.after > stage.policy.grace_seconds / 2
        assert stage.pointers(subject) == {subject.old, subject.new}
        flipped_long_ago(stage, subject)
        assert stage.attempt(subject) == Done("flipped")
        assert stage.catalog.load(subject.old).row_count == 11

    def test_a_commit_through_the_legacy_name_meanwhile_is_never_lost(
        self, stage: Stage, operator: psycopg.Connection
    ) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        stage.catalog.commit(subject.old)
        revert(stage, operator, subject)
        assert stage.attempt(subject) == Done("flipped")
        assert stage.live(subject) == subject.old
        assert stage.catalog.load(subject.old).row_count == 11
        assert stage.finish(subject) == "done"

    def test_by_rename(self, stage: Stage, operator: psycopg.Connection) -> None:
        stage.execute("INSERT INTO reroot.warehouses (warehouse, strategy) VALUES ('w', 'rename')")
        stage.catalog.once = True
        subject = stage.subject()
        assert stage.attempt(subject) == Done("done")
        revert(stage, operator, subject)
        assert stage.attempt(subject) == Done("done")
        assert stage.pointers(subject) == {subject.old} == {stage.live(subject)}

    def test_during_the_retirement_nothing_is_lost(self, stage: Stage, operator: psycopg.Connection) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        stage.pass_time(subject)
        with stage.when("drop", lambda: revert(stage, operator, subject)):
            stage.attempt(subject)
        assert stage.row(subject)["direction"] == "back"
        stage.execute("UPDATE reroot.moves SET resolver_changed_at = now() - interval '1 day'")
        assert stage.finish(subject) == "done"
        assert stage.pointers(subject) == {subject.old} == {stage.live(subject)}

    def test_what_is_queued_or_parked_stays(self, stage: Stage, operator: psycopg.Connection) -> None:
        queued, parked = stage.subject(), stage.subject()
        stage.catalog.create(parked.new)
        stage.attempt(parked)
        before = stage.everything()
        assert reversal.revert_datasets(operator, [queued.id, parked.id]) == []
        assert stage.everything() == before

    def test_all(self, stage: Stage, operator: psycopg.Connection) -> None:
        flipped, done, queued = (stage.subject() for _ in range(3))
        stage.attempt(flipped)
        stage.finish(done)
        assert sorted(reversal.revert_all(operator)) == sorted([flipped.id, done.id])
        assert stage.row(queued)["direction"] == "out"


def diverge_after_flip(stage: Stage) -> Subject:
    """Both names were committed to after the flip, and the retirement has parked it."""
    subject = stage.subject()
    stage.attempt(subject)
    stage.catalog.commit(subject.new, rows=100)
    stage.catalog.commit(subject.old, rows=1000)
    flipped_long_ago(stage, subject)
    assert isinstance(stage.attempt(subject), Park)
    assert stage.parked(subject) == ParkCode.DIVERGED
    return subject


def diverge_before_flip(stage: Stage) -> Subject:
    """A registration of an earlier attempt was committed to, and so was the old name."""
    subject = stage.subject()
    stage.catalog.hold(subject.new, stage.catalog.names[subject.old])
    stage.catalog.commit(subject.new, rows=100)
    stage.catalog.commit(subject.old, rows=1000)
    assert isinstance(stage.attempt(subject), Park)
    assert stage.parked(subject) == ParkCode.DIVERGED
    return subject


def resolve(stage: Stage, operator: psycopg.Connection, subject: Subject, keep: Keep) -> str:
    """Decide as the command does: what the other side points to now is what may be lost."""
    divergence = reversal.diverged(operator, subject.id)
    assert divergence is not None
    lost = stage.catalog.names[subject.new if keep is Keep.OLD else subject.old]
    assert reversal.resolve(operator, divergence, keep, lost)
    return lost


def move_schema(stage: Stage, subject: Subject, name: str = "Asia") -> TableIdentifier:
    """The dataset gets another schema; the name that it would have there."""
    schema = stage.control_plane.schema(stage.control_plane.catalog(subject.workspace, name), name)
    stage.execute("UPDATE datasets SET schema_id = %s WHERE id::text = %s", (schema, subject.id))
    return TableIdentifier.within(stage.control_plane.place(schema), subject.old.name)


def registered(stage: Stage, subject: Subject) -> None:
    """An attempt that died after it had registered the target."""
    with stage.when("soak", lambda: raising(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        stage.attempt(subject)


def written_to(stage: Stage, *names: TableIdentifier) -> None:
    for number, name in enumerate(names, 1):
        stage.catalog.commit(name, rows=100 * number)


def parked_between(stage: Stage, operator: psycopg.Connection, subject: Subject) -> reversal.Diverged:
    assert stage.finish(subject) == "parked"
    assert stage.parked(subject) == ParkCode.DIVERGED
    found = reversal.diverged(operator, subject.id)
    assert found is not None
    return found


class TestResolveAmongTargets:
    """The dataset's schema has changed: the ledger's target is not the only other name."""

    @pytest.mark.parametrize("keep", list(Keep))
    def test_a_target_that_was_not_planned(self, stage: Stage, operator: psycopg.Connection, keep: Keep) -> None:
        subject = stage.subject()
        target = move_schema(stage, subject)
        registered(stage, subject)
        written_to(stage, target, subject.old)
        found = parked_between(stage, operator, subject)
        assert (found.old, found.new, found.only) == (subject.old, target, None)
        lost = stage.catalog.names[target if keep is Keep.OLD else subject.old]
        assert reversal.resolve(operator, found, keep, lost)
        assert stage.finish(subject) == "done"
        assert stage.pointers(subject) == {target} == {stage.live(subject)}
        assert stage.catalog.load(target).row_count == (210 if keep is Keep.OLD else 110)

    @pytest.mark.parametrize("keep", list(Keep))
    def test_a_registration_of_an_earlier_target(self, stage: Stage, operator: psycopg.Connection, keep: Keep) -> None:
        subject = stage.subject()
        registered(stage, subject)
        written_to(stage, subject.new, subject.old)
        target = move_schema(stage, subject)
        found = parked_between(stage, operator, subject)
        assert (found.old, found.new, found.only) == (subject.old, subject.new, None)
        lost = stage.catalog.names[subject.new if keep is Keep.OLD else subject.old]
        assert reversal.resolve(operator, found, keep, lost)
        assert stage.finish(subject) == "done"
        goes_to = target if keep is Keep.OLD else subject.new
        assert stage.pointers(subject) == {goes_to} == {stage.live(subject)}
        assert stage.open_entries(subject) == []

    def test_one_that_came_late_after_the_flip(self, stage: Stage, operator: psycopg.Connection) -> None:
        subject = stage.subject()
        with stage.when("register", lambda: raising(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
            stage.attempt(subject)
        first = stage.catalog.names[subject.old]
        target = move_schema(stage, subject)
        assert stage.attempt(subject) == Done("flipped")
        stage.catalog.hold(subject.new, first)
        written_to(stage, target, subject.new)
        flipped_long_ago(stage, subject)
        found = parked_between(stage, operator, subject)
        assert (found.old, found.new, found.only) == (subject.new, target, Keep.NEW)
        lost = stage.catalog.names[subject.new]
        assert not reversal.resolve(operator, found, Keep.OLD, stage.catalog.names[target])
        assert reversal.resolve(operator, found, Keep.NEW, lost)
        assert stage.finish(subject) == "done"
        assert stage.pointers(subject) == {target} == {stage.live(subject)}
        assert lost in stage.catalog.files


class TestResolve:
    @pytest.mark.parametrize("diverge", [diverge_after_flip, diverge_before_flip])
    def test_keep_new(self, stage: Stage, operator: psycopg.Connection, diverge: object) -> None:
        subject = diverge(stage)  # type: ignore[operator]
        lost = resolve(stage, operator, subject, Keep.NEW)
        assert stage.finish(subject) == "done"
        assert stage.live(subject) == subject.new
        assert stage.pointers(subject) == {subject.new}
        assert stage.catalog.load(subject.new).row_count == 110
        assert lost in stage.catalog.files  # no file is deleted
        journaled = stage.execute("SELECT metadata_location FROM reroot.pointers WHERE action = 'withdraw'")
        assert (lost,) in journaled

    def test_keep_old_before_the_flip(self, stage: Stage, operator: psycopg.Connection) -> None:
        subject = diverge_before_flip(stage)
        resolve(stage, operator, subject, Keep.OLD)
        assert stage.finish(subject) == "done"
        assert stage.live(subject) == subject.new
        assert stage.pointers(subject) == {subject.new}
        assert stage.catalog.load(subject.new).row_count == 1010

    def test_keep_old_after_the_flip_goes_back_and_plans_again(
        self, stage: Stage, operator: psycopg.Connection
    ) -> None:
        subject = diverge_after_flip(stage)
        resolve(stage, operator, subject, Keep.OLD)
        assert stage.attempt(subject) == Done("flipped")
        assert stage.live(subject) == subject.old
        stage.pass_time(subject)
        assert stage.attempt(subject) == Done("done")
        row = stage.row(subject)
        assert (row["state"], row["direction"], row["given_up"]) == ("queued", "out", None)
        assert stage.pointers(subject) == {subject.old}
        assert stage.finish(subject) == "done"
        assert stage.live(subject) == subject.new
        assert stage.catalog.load(subject.new).row_count == 1010

    @pytest.mark.parametrize("diverge", [diverge_after_flip, diverge_before_flip])
    @pytest.mark.parametrize("keep", list(Keep))
    def test_what_moved_since_it_was_shown_is_parked_again(
        self, stage: Stage, operator: psycopg.Connection, diverge: object, keep: Keep
    ) -> None:
        subject = diverge(stage)  # type: ignore[operator]
        resolve(stage, operator, subject, keep)
        moved = stage.catalog.commit(subject.new if keep is Keep.OLD else subject.old, rows=7)
        flipped_long_ago(stage, subject)
        assert stage.finish(subject) == "parked"
        assert stage.parked(subject) == ParkCode.DIVERGED
        assert moved in stage.catalog.names.values()

    def test_nothing_else_gives_up_a_commit(self, stage: Stage, operator: psycopg.Connection) -> None:
        subject = diverge_after_flip(stage)
        stage.execute(
            "UPDATE reroot.moves SET state = 'flipped', park_code = NULL, park_text = NULL, park_remedy = NULL"
        )
        assert stage.finish(subject) == "parked"
        assert stage.pointers(subject) == {subject.old, subject.new}

    def test_a_row_that_changed_since_it_was_read_stays(self, stage: Stage, operator: psycopg.Connection) -> None:
        subject = diverge_after_flip(stage)
        divergence = reversal.diverged(operator, subject.id)
        assert divergence is not None
        stage.execute("UPDATE reroot.moves SET claim = claim + 1")
        assert not reversal.resolve(operator, divergence, Keep.NEW, "anything")
        assert stage.parked(subject) == ParkCode.DIVERGED

    def test_only_a_divergence_can_be_resolved(self, stage: Stage, operator: psycopg.Connection) -> None:
        subject = stage.subject()
        assert reversal.diverged(operator, subject.id) is None


def test_an_operators_strategy_survives_what_is_found_out(stage: Stage, operator: psycopg.Connection) -> None:
    from worker.controlplane import warehouses  # noqa: PLC0415 - only here

    warehouses.set_strategy(operator, "w", Strategy.RENAME)
    assert stage.attempt(stage.subject()) == Done("done")
    [known] = warehouses.known_warehouses(operator)
    assert (known.strategy, known.set_by_operator, known.away_for) == (Strategy.RENAME, True, None)
    warehouses.set_strategy(operator, "w", None)
    assert stage.attempt(stage.subject()) == Done("flipped")
    [known] = warehouses.known_warehouses(operator)
    assert (known.strategy, known.set_by_operator) == (Strategy.REGISTER, False)
