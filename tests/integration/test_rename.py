"""Moves by rename, and how a warehouse is found to need it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
import pytest

from tests.support.stage import WAREHOUSE, Stage, Subject, raising, unclear
from worker.identifiers import TableIdentifier
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind, SoakFault
from worker.moves.ports import Strategy
from worker.outcome import Busy, Done, Park, ParkCode, Retry

pytestmark = pytest.mark.every_postgres


@pytest.fixture
def renaming(stage: Stage) -> Stage:
    """A stage whose warehouse is told to rename."""
    stage.policy = replace(stage.policy, strategy=Strategy.RENAME)
    stage.mover = stage.new_mover()
    return stage


def strategy(stage: Stage) -> str | None:
    found = stage.execute("SELECT strategy FROM reroot.warehouses WHERE warehouse = %s", (WAREHOUSE,))
    return found[0][0] if found else None


def interrupted(stage: Stage, subject: Subject, call: str, *, nth: int = 1, after: bool = False) -> None:
    with stage.when(call, lambda: raising(KeyboardInterrupt()), nth=nth, after=after), pytest.raises(KeyboardInterrupt):
        stage.attempt(subject)


class TestRename:
    def test_a_clean_one_is_done_in_one_attempt_and_four_requests(self, renaming: Stage) -> None:
        assert renaming.attempt(renaming.subject()) == Done("done")
        assert renaming.methods().count("namespace_exists") == 1  # asked once per process
        renaming.catalog.calls.clear()
        subject = renaming.subject()
        assert renaming.attempt(subject) == Done("done")
        sent = [method for method in renaming.methods() if method not in {"create_namespace", "soak"}]
        assert [method for method in sent if method != "namespace_exists"] == ["load", "load", "rename", "load"]
        assert renaming.pointers(subject) == {subject.new} == {renaming.live(subject)}
        assert renaming.control_plane.logged_identifiers(subject.id) == [str(subject.new)]
        assert renaming.open_entries(subject) == []

    def test_between_the_rename_and_the_commit_is_one_look_and_no_statement(
        self, renaming: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        subject = renaming.subject()
        sent: list[object] = []
        execute = psycopg.Cursor.execute

        def spy(cursor: psycopg.Cursor, query: Any, *arguments: Any, **keywords: Any) -> psycopg.Cursor:
            sent.append(query)
            return execute(cursor, query, *arguments, **keywords)

        def listen() -> None:
            renaming.catalog.before = lambda call: sent.append(call.method)
            monkeypatch.setattr(psycopg.Cursor, "execute", spy)

        with renaming.when("rename", listen, after=True):
            assert renaming.attempt(subject) == Done("done")
        monkeypatch.undo()
        assert sent == ["load"]

    def test_the_soak_comes_before_anything_moved(self, renaming: Stage) -> None:
        subject = renaming.subject()
        renaming.catalog.broken[renaming.catalog.names[subject.old]] = SoakFault.DAMAGED
        assert isinstance(renaming.attempt(subject), Retry)
        assert "rename" not in renaming.methods()

    def test_a_commit_just_before_the_rename_is_kept(self, renaming: Stage) -> None:
        subject = renaming.subject()
        with renaming.when("rename", lambda: renaming.catalog.commit(subject.old)):
            assert renaming.attempt(subject) == Done("done")
        assert renaming.catalog.load(subject.new).row_count == 11

    @pytest.mark.parametrize("after", [False, True])
    def test_an_unclear_answer_is_asked_for(self, renaming: Stage, after: bool) -> None:
        subject = renaming.subject()
        with renaming.when("rename", lambda: raising(unclear()), after=after):
            outcome = renaming.attempt(subject)
        assert isinstance(outcome, Done if after else Retry)
        assert renaming.finish(subject) == "done"
        assert renaming.pointers(subject) == {subject.new}

    @pytest.mark.parametrize("code", [ErrorCode.ALREADY_EXISTS, ErrorCode.TABLE_MISSING, ErrorCode.NAMESPACE_MISSING])
    def test_a_false_refusal_after_it_was_done_is_seen_through(self, renaming: Stage, code: ErrorCode) -> None:
        subject = renaming.subject()
        lie = CatalogError(code, ErrorKind.PERMANENT, "no")
        with renaming.when("rename", lambda: raising(lie), after=True):
            assert renaming.attempt(subject) == Done("done")

    def test_a_taken_target_is_never_touched(self, renaming: Stage) -> None:
        subject = renaming.subject()
        foreign = renaming.catalog.create(subject.new)
        assert isinstance(renaming.attempt(subject), Park)
        assert renaming.parked(subject) == ParkCode.NAME_TAKEN
        assert renaming.catalog.names[subject.new] == foreign
        assert renaming.live(subject) == subject.old

    def test_rows_that_somebody_holds_are_found_before_anything_moved(self, renaming: Stage) -> None:
        subject = renaming.subject()
        with renaming.transaction() as other:
            other.execute("SELECT 1 FROM datasets WHERE id::text = %s FOR UPDATE", (subject.id,))
            assert isinstance(renaming.attempt(subject), Busy)
        assert "rename" not in renaming.methods()
        assert renaming.open_entries(subject) == []
        assert renaming.finish(subject) == "done"

    def test_the_place_is_gone_already_and_the_new_name_stands(self, renaming: Stage) -> None:
        subject = renaming.subject()
        renaming.catalog.hold(subject.new, renaming.catalog.names.pop(subject.old))
        assert renaming.attempt(subject) == Done("done")


class TestWindow:
    def test_a_crash_after_the_rename_is_due_at_once_and_flipped(self, renaming: Stage) -> None:
        subject = renaming.subject()
        interrupted(renaming, subject, "rename", after=True)
        assert renaming.live(subject) not in renaming.pointers(subject)
        assert renaming.attempt(subject) == Done("done")
        assert renaming.live(subject) == subject.new

    def test_a_crash_before_the_rename_starts_over_under_the_same_entry(self, renaming: Stage) -> None:
        subject = renaming.subject()
        interrupted(renaming, subject, "rename")
        assert renaming.attempt(subject) == Done("done")
        entries = renaming.execute("SELECT action, outcome FROM reroot.pointers WHERE dataset_id = %s", (subject.id,))
        assert entries == [("rename", "kept")]

    def test_it_is_settled_although_the_attempts_are_used_up(self, renaming: Stage) -> None:
        subject = renaming.subject()
        interrupted(renaming, subject, "rename", after=True)
        renaming.execute("UPDATE reroot.moves SET attempts = 99")
        assert renaming.attempt(subject) == Done("done")

    def test_it_is_never_parked_while_it_may_have_happened(self, renaming: Stage) -> None:
        subject = renaming.subject()
        interrupted(renaming, subject, "rename", after=True)
        renaming.execute("UPDATE reroot.moves SET attempts = 99")
        renaming.catalog.before = lambda call: raising(unclear()) if call.method == "load" else None
        assert isinstance(renaming.attempt(subject), Retry)
        renaming.catalog.before = lambda _: None
        assert renaming.row(subject)["state"] == "queued"
        renaming.pass_time(subject)
        assert renaming.attempt(subject) == Done("done")

    def test_a_place_that_changed_meanwhile_gets_the_table_by_way_of_the_old_name(self, renaming: Stage) -> None:
        subject = renaming.subject()
        interrupted(renaming, subject, "rename", after=True)
        schema = renaming.control_plane.schema(renaming.control_plane.catalog(subject.workspace, "Asia"), "Asia")
        renaming.execute("UPDATE datasets SET schema_id = %s WHERE id::text = %s", (schema, subject.id))
        assert renaming.finish(subject) == "done"
        place = renaming.control_plane.place(schema)
        assert renaming.pointers(subject) == {TableIdentifier.within(place, subject.old.name)}
        assert renaming.live(subject) == TableIdentifier.within(place, subject.old.name)

    def test_a_schema_taken_away_meanwhile_brings_the_table_home(self, renaming: Stage) -> None:
        subject = renaming.subject()
        interrupted(renaming, subject, "rename", after=True)
        renaming.execute("UPDATE datasets SET schema_id = NULL WHERE id::text = %s", (subject.id,))
        assert isinstance(renaming.attempt(subject), Park)
        assert renaming.parked(subject) == ParkCode.NO_PLACE
        assert renaming.pointers(subject) == {subject.old} == {renaming.live(subject)}

    def test_the_connection_lost_in_the_window_renames_nothing_back(self, renaming: Stage) -> None:
        subject = renaming.subject()

        def cut() -> None:
            renaming.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'reroot-lock'"
            )

        with renaming.when("rename", cut, after=True):
            assert isinstance(renaming.attempt(subject), Retry)
        assert renaming.methods().count("rename") == 1
        assert renaming.attempt(subject) == Done("done")


class TestAuto:
    def test_two_datasets_turn_a_warehouse_that_holds_a_table_once(self, stage: Stage) -> None:
        stage.catalog.once = True
        first, second, third = (stage.subject() for _ in range(3))
        assert stage.attempt(first) == Done("done")
        assert strategy(stage) is None
        assert stage.attempt(second) == Done("done")
        assert strategy(stage) == "rename"
        stage.catalog.calls.clear()
        assert stage.attempt(third) == Done("done")
        assert "register" not in stage.methods()

    def test_one_odd_table_never_turns_a_warehouse(self, stage: Stage) -> None:
        odd = stage.subject()
        refused = CatalogError(ErrorCode.ALREADY_EXISTS, ErrorKind.PERMANENT, "exists")
        for _ in range(3):
            with stage.when("register", lambda: raising(refused)), stage.when("rename", lambda: raising(unclear())):
                assert isinstance(stage.attempt(odd), Retry)
            stage.pass_time(odd)
        assert strategy(stage) is None
        assert stage.attempt(stage.subject()) == Done("flipped")
        assert strategy(stage) == "register"

    def test_a_server_without_register_renames(self, stage: Stage) -> None:
        subject = stage.subject()
        not_offered = CatalogError(ErrorCode.NOT_OFFERED, ErrorKind.PERMANENT, "the catalog does not offer register")
        with stage.when("register", lambda: raising(not_offered)):
            assert stage.attempt(subject) == Done("done")

    def test_a_right_that_is_missing_is_missed_by_the_rename_too(self, stage: Stage) -> None:
        forbidden = CatalogError(ErrorCode.FORBIDDEN, ErrorKind.PERMANENT, "403")
        for subject in (stage.subject(), stage.subject()):
            with stage.when("register", lambda: raising(forbidden)), stage.when("rename", lambda: raising(forbidden)):
                assert isinstance(stage.attempt(subject), Park)
            assert stage.parked(subject) == ParkCode.FORBIDDEN
            assert stage.pointers(subject) == {subject.old}
        assert strategy(stage) is None

    def test_a_view_under_the_target_is_a_taken_name(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.catalog.views.add(subject.new)
        assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.NAME_TAKEN
        assert strategy(stage) is None

    def test_what_the_settings_say_is_not_given_up(self, stage: Stage) -> None:
        stage.policy = replace(stage.policy, strategy=Strategy.REGISTER)
        stage.mover = stage.new_mover()
        stage.catalog.once = True
        subject = stage.subject()
        for _ in range(6):
            assert isinstance(stage.attempt(subject), Retry)
            stage.pass_time(subject)
        assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.REFUSED
        assert stage.pointers(subject) == {subject.old}

    def test_a_refusal_that_passes_is_not_believed(self, stage: Stage) -> None:
        stage.policy = replace(stage.policy, strategy=Strategy.REGISTER)
        stage.mover = stage.new_mover()
        subject = stage.subject()
        refused = CatalogError(ErrorCode.ALREADY_EXISTS, ErrorKind.PERMANENT, "exists")
        with stage.when("register", lambda: raising(refused)):
            assert isinstance(stage.attempt(subject), Retry)
        stage.pass_time(subject)
        assert stage.attempt(subject) == Done("flipped")

    def test_an_operators_word_wins_over_the_settings(self, renaming: Stage) -> None:
        renaming.execute(
            "INSERT INTO reroot.warehouses (warehouse, strategy, set_by_operator) VALUES (%s, 'register', true)",
            (WAREHOUSE,),
        )
        assert renaming.attempt(renaming.subject()) == Done("flipped")
