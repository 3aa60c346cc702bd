"""Renames to where the table cannot be read: found before it moves where that can be, else taken back uncommitted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.stage import Stage, Subject, raising, unclear
from worker.controlplane import operations
from worker.controlplane.connection import connect
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind
from worker.moves.ports import Strategy
from worker.outcome import Done, Park, ParkCode, Retry

if TYPE_CHECKING:
    from tests.support.catalog_double import Call

FORBIDDEN = CatalogError(ErrorCode.FORBIDDEN, ErrorKind.PERMANENT, "403 ForbiddenException")


@pytest.fixture
def renaming(stage: Stage) -> Stage:
    """A stage whose warehouse is told to rename."""
    stage.policy = replace(stage.policy, strategy=Strategy.RENAME)
    stage.mover = stage.new_mover()
    return stage


def stands_untouched(stage: Stage, subject: Subject) -> None:
    """Under its old name, which the resolver and the log give, and nothing is open."""
    assert stage.pointers(subject) == {subject.old} == {stage.live(subject)}
    assert stage.control_plane.logged_identifiers(subject.id) == [str(subject.old)]
    assert stage.open_entries(subject) == []


def outcomes(stage: Stage, subject: Subject) -> list[str]:
    rows = stage.execute("SELECT outcome FROM reroot.pointers WHERE dataset_id = %s ORDER BY id", (subject.id,))
    return [outcome for (outcome,) in rows]


def retry(stage: Stage, subject: Subject, *, mended: bool) -> None:
    with connect(stage.url, role="operator") as connection:
        assert operations.retry_datasets(connection, [subject.id], mended=mended)


def unreadable(stage: Stage, subject: Subject, error: CatalogError, *, once_renamed: bool = False) -> None:
    """Every load of the new name fails; ``once_renamed``: only while the table stands there."""

    def hook(call: Call) -> None:
        asked = call.method == "load" and call.arguments == (subject.new,)
        if asked and not (once_renamed and subject.new not in stage.catalog.names):
            raise error

    stage.catalog.before = hook


class TestBefore:
    def test_a_place_that_this_worker_may_not_read_is_found_before_the_table_moves(self, renaming: Stage) -> None:
        subject = renaming.subject()
        unreadable(renaming, subject, FORBIDDEN)
        assert isinstance(renaming.attempt(subject), Park)
        assert renaming.parked(subject) == ParkCode.FORBIDDEN
        assert f"may not read {subject.new}" in renaming.row(subject)["park_text"]
        assert "rename" not in renaming.methods()
        stands_untouched(renaming, subject)

    def test_a_namespace_that_is_not_shown_is_found_before_the_table_moves(self, renaming: Stage) -> None:
        subject = renaming.subject()
        renaming.catalog.after = lambda call: (
            renaming.catalog.namespaces.discard(subject.new.namespace) if call.method == "create_namespace" else None
        )
        outcome = renaming.attempt(subject)
        assert isinstance(outcome, Retry)
        assert outcome.code is ParkCode.FORBIDDEN
        assert "rename" not in renaming.methods()
        stands_untouched(renaming, subject)

    def test_another_table_there_is_found_before_anything_is_journaled(self, renaming: Stage) -> None:
        subject = renaming.subject()
        renaming.catalog.create(subject.new)
        assert isinstance(renaming.attempt(subject), Park)
        assert renaming.parked(subject) == ParkCode.NAME_TAKEN
        assert outcomes(renaming, subject) == []


class TestAfter:
    @pytest.mark.parametrize("strategy", [Strategy.RENAME, None])
    def test_a_hidden_name_is_left_again_before_the_commit(self, stage: Stage, strategy: Strategy | None) -> None:
        stage.policy = replace(stage.policy, strategy=strategy)
        stage.mover = stage.new_mover()
        stage.catalog.once = True
        subject = stage.subject()
        stage.catalog.hidden.add(subject.new)
        assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.NAME_HIDDEN
        assert str(subject.new) in stage.row(subject)["park_text"]
        assert stage.methods().count("rename") == 2
        stands_untouched(stage, subject)
        assert outcomes(stage, subject)[-1] == "unreadable"

    def test_a_name_that_may_not_be_read_once_it_is_taken_is_left_again(self, renaming: Stage) -> None:
        subject = renaming.subject()
        unreadable(renaming, subject, FORBIDDEN, once_renamed=True)
        assert isinstance(renaming.attempt(subject), Park)
        assert renaming.parked(subject) == ParkCode.FORBIDDEN
        stands_untouched(renaming, subject)

    def test_a_server_that_cannot_load_it_there_gets_it_back_and_is_asked_again_later(self, renaming: Stage) -> None:
        subject = renaming.subject()
        unreadable(renaming, subject, unclear("500 Authorization failed"), once_renamed=True)
        outcome = renaming.attempt(subject)
        assert isinstance(outcome, Retry)
        assert (outcome.code, outcome.urgent) == (ParkCode.TABLE_UNREADABLE, False)
        stands_untouched(renaming, subject)
        renaming.catalog.before = lambda _: None
        assert renaming.finish(subject) == "done"

    def test_one_wrong_answer_takes_nothing_back(self, renaming: Stage) -> None:
        subject = renaming.subject()
        with renaming.when("load", lambda: raising(unclear()), nth=3):
            assert renaming.attempt(subject) == Done("done")
        assert renaming.methods().count("rename") == 1

    def test_a_crash_in_the_window_to_a_hidden_name_ends_the_same_way(self, renaming: Stage) -> None:
        subject = renaming.subject()
        renaming.catalog.hidden.add(subject.new)
        with (
            renaming.when("rename", lambda: raising(KeyboardInterrupt()), after=True),
            pytest.raises(KeyboardInterrupt),
        ):
            renaming.attempt(subject)
        assert isinstance(renaming.attempt(subject), Park)
        assert renaming.parked(subject) == ParkCode.NAME_HIDDEN
        stands_untouched(renaming, subject)


class TestRetry:
    def test_it_does_not_move_again_before_somebody_says_that_the_cause_is_mended(self, renaming: Stage) -> None:
        subject = renaming.subject()
        renaming.catalog.hidden.add(subject.new)
        assert isinstance(renaming.attempt(subject), Park)
        assert f"reroot retry {subject.id} --mended" in renaming.row(subject)["park_remedy"]
        retry(renaming, subject, mended=False)
        renaming.catalog.calls.clear()
        assert isinstance(renaming.attempt(subject), Park)
        assert renaming.parked(subject) == ParkCode.NAME_HIDDEN
        assert "rename" not in renaming.methods()
        renaming.catalog.hidden.clear()
        retry(renaming, subject, mended=True)
        assert renaming.attempt(subject) == Done("done")

    def test_another_place_is_another_name(self, renaming: Stage) -> None:
        subject = renaming.subject()
        renaming.catalog.hidden.add(subject.new)
        assert isinstance(renaming.attempt(subject), Park)
        schema = renaming.control_plane.schema(renaming.control_plane.catalog(subject.workspace, "Asia"), "Asia")
        renaming.execute("UPDATE datasets SET schema_id = %s WHERE id::text = %s", (schema, subject.id))
        retry(renaming, subject, mended=False)
        assert renaming.attempt(subject) == Done("done")
