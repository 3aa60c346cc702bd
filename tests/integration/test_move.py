"""The move of one dataset, on a real ledger and lock, with a catalog that does what the tests say."""

from __future__ import annotations

import pytest

from tests.support.stage import Stage, Subject, raising, unclear
from worker.identifiers import QUARANTINE_NAMESPACE, TableIdentifier
from worker.outcome import Done, Ignored, Park, ParkCode, Retry

pytestmark = pytest.mark.every_postgres


class TestCleanMove:
    def test_it_flips_then_retires_with_four_requests_each(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.catalog.make_namespaces(subject.new.namespace)
        stage.catalog.make_namespaces((QUARANTINE_NAMESPACE,))
        assert stage.attempt(stage.subject()) == Done("flipped")
        assert stage.methods().count("rename") == 1  # asked once per process: may it withdraw?
        stage.catalog.calls.clear()

        assert stage.attempt(subject) == Done("flipped")
        assert [m for m in stage.methods() if m not in {"create_namespace", "soak"}] == [
            "load",
            "register",
            "load",
            "load",
        ]
        assert stage.live(subject) == subject.new
        assert stage.pointers(subject) == {subject.old, subject.new}
        assert stage.control_plane.logged_identifiers(subject.id) == [str(subject.new)]

        stage.catalog.calls.clear()
        stage.pass_time(subject)
        assert stage.attempt(subject) == Done("done")
        assert [m for m in stage.methods() if m != "create_namespace"] == ["load", "rename", "load", "drop"]
        assert stage.pointers(subject) == {subject.new}
        assert stage.open_entries(subject) == []

    def test_before_the_grace_has_passed_a_message_changes_nothing(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        before = stage.everything()
        for _ in range(10):
            assert isinstance(stage.attempt(subject), Ignored)
        assert stage.everything() == before

    def test_a_message_for_something_unknown_or_done_changes_nothing(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.finish(subject)
        before = stage.everything()
        assert isinstance(stage.attempt(subject), Ignored)
        assert isinstance(stage.mover.attempt("no-such-dataset"), Ignored)
        assert stage.everything() == before

    def test_a_table_name_with_dots_is_moved_whole(self, stage: Stage) -> None:
        subject = stage.subject(queued=False)
        dotted = TableIdentifier(("datasets",), "my.table")
        stage.catalog.hold(dotted, stage.catalog.names.pop(subject.old))
        stage.execute(
            "UPDATE iceberg_sync_log SET iceberg_table = %s WHERE dataset_id::text = %s", (str(dotted), subject.id)
        )
        subject = Subject(
            subject.id, subject.workspace, subject.schema, dotted, TableIdentifier(subject.new.namespace, "my.table"),
            subject.uuid,
        )  # fmt: skip
        stage.queue(subject)
        assert stage.finish(subject) == "done"
        assert stage.pointers(subject) == {subject.new}
        assert stage.control_plane.logged_identifiers(subject.id) == [str(subject.new)]


class TestWritersInBetween:
    def test_a_commit_between_registration_and_flip_is_under_the_new_name(self, stage: Stage) -> None:
        subject = stage.subject()
        committed: list[str] = []
        with stage.when("soak", lambda: committed.append(stage.catalog.commit(subject.old))):
            assert stage.attempt(subject) == Done("flipped")
        assert stage.catalog.names[subject.new] == committed[0]
        assert stage.finish(subject) == "done"
        assert stage.pointers(subject) == {subject.new}

    def test_a_source_that_moves_under_every_look_waits_and_parks_in_the_end(self, stage: Stage) -> None:
        subject = stage.subject()
        soaks = 0

        def hook(call: object) -> None:
            nonlocal soaks
            if getattr(call, "method", "") == "soak":
                soaks += 1
                stage.catalog.commit(subject.old)

        stage.catalog.before = hook
        outcome = stage.attempt(subject)
        assert isinstance(outcome, Retry)
        assert outcome.code is ParkCode.SOURCE_MOVING
        assert soaks == stage.policy.second_looks
        assert stage.finish(subject) == "parked"
        assert stage.parked(subject) == ParkCode.SOURCE_MOVING
        assert stage.live(subject) == subject.old

    def test_a_commit_through_the_new_name_before_the_flip_is_kept(self, stage: Stage) -> None:
        subject = stage.subject()
        with stage.when("register", lambda: stage.catalog.commit(subject.new), after=True):
            assert stage.attempt(subject) == Done("flipped")
        assert stage.catalog.load(subject.new).row_count == 11
        assert stage.finish(subject) == "done"
        assert stage.catalog.load(subject.new).row_count == 11

    @pytest.mark.parametrize("offers_rename", [True, False])
    def test_an_engine_that_commits_to_the_old_name_during_the_grace_parks_it(
        self, stage: Stage, offers_rename: bool
    ) -> None:
        stage.catalog.offers_rename = offers_rename
        subject = stage.subject()
        stage.attempt(subject)
        late = stage.catalog.commit(subject.old)
        stage.pass_time(subject)
        outcome = stage.attempt(subject)
        assert isinstance(outcome, Park)
        assert outcome.code is ParkCode.DIVERGED
        assert str(stage.catalog.load(subject.old).snapshot_id) in outcome.why
        assert stage.catalog.names[subject.old] == late
        assert stage.pointers(subject) == {subject.old, subject.new}

    def test_an_engine_between_look_and_drop_meets_the_fence(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        stage.pass_time(subject)
        refused: list[KeyError] = []

        def engine() -> None:
            try:
                stage.catalog.commit(subject.old)
            except KeyError as error:
                refused.append(error)

        with stage.when("drop", engine):
            assert stage.attempt(subject) == Done("done")
        assert len(refused) == 1

    def test_an_engine_just_before_the_fence_is_put_back(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        stage.pass_time(subject)
        with stage.when("rename", lambda: stage.catalog.commit(subject.old)):
            assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.DIVERGED
        assert stage.pointers(subject) == {subject.old, subject.new}
        assert stage.open_entries(subject) == []
        assert stage.row(subject)["park_text"].startswith(f"{subject.old} and {subject.new} have diverged")

    def test_log_rows_of_late_writers_are_rewritten_by_the_withdrawal(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        stage.control_plane.log(subject.id, iceberg_table=str(subject.old))
        assert stage.finish(subject) == "done"
        assert stage.control_plane.logged_identifiers(subject.id) == [str(subject.new)] * 2

    def test_fork_with_short_metadata_logs_is_diverged_and_not_an_ancestor(self, stage: Stage) -> None:
        stage.catalog.log_length = 1
        subject = stage.subject()
        with stage.when("soak", lambda: raising(unclear())):
            assert isinstance(stage.attempt(subject), Retry)
        for name in (subject.old, subject.new):
            for _ in range(3):
                stage.catalog.commit(name)
        stage.pass_time(subject)
        assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.DIVERGED
        assert stage.live(subject) == subject.old

    def test_a_schema_change_alone_counts_as_a_commit(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        stage.catalog.commit(subject.old, schema_only=True)
        stage.pass_time(subject)
        assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.DIVERGED


class TestWhatWasThereBefore:
    def test_a_stale_registration_of_an_earlier_run_is_replaced(self, stage: Stage) -> None:
        subject = stage.subject()
        with stage.when("soak", lambda: raising(unclear())):
            stage.attempt(subject)
        stage.catalog.commit(subject.old)
        assert stage.finish(subject) == "done"
        assert stage.pointers(subject) == {subject.new}
        assert stage.catalog.load(subject.new).row_count == 11
        assert stage.open_entries(subject) == []

    def test_a_stale_registration_that_no_journal_knows_is_replaced(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.catalog.hold(subject.new, stage.catalog.names[subject.old])
        stage.catalog.commit(subject.old)
        assert stage.finish(subject) == "done"
        assert stage.catalog.load(subject.new).row_count == 11

    def test_a_foreign_table_under_the_target_is_never_touched(self, stage: Stage) -> None:
        subject = stage.subject()
        foreign = stage.catalog.create(subject.new)
        assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.NAME_TAKEN
        assert stage.catalog.names[subject.new] == foreign
        assert stage.open_entries(subject) == []

    def test_the_old_name_gone_and_the_new_one_proved_by_the_log(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.catalog.hold(subject.new, stage.catalog.names.pop(subject.old))
        assert stage.finish(subject) == "done"
        assert stage.live(subject) == subject.new

    def test_the_old_name_gone_and_nothing_proves_the_new_one(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.catalog.hold(subject.new, stage.catalog.names.pop(subject.old))
        stage.execute("UPDATE iceberg_sync_log SET snapshot_id = 4711 WHERE dataset_id::text = %s", (subject.id,))
        assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.UNVERIFIED
        assert stage.live(subject) == subject.old

    def test_both_names_gone(self, stage: Stage) -> None:
        subject = stage.subject()
        del stage.catalog.names[subject.old]
        assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.TABLE_MISSING

    def test_the_source_replaced_by_another_table(self, stage: Stage) -> None:
        subject = stage.subject()
        with stage.when("soak", lambda: raising(unclear())):
            stage.attempt(subject)
        del stage.catalog.names[subject.old]
        stage.catalog.create(subject.old)
        stage.pass_time(subject)
        assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.SOURCE_REPLACED

    def test_the_column_set_to_the_target_by_another_hand(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.catalog.hold(subject.new, stage.catalog.names[subject.old])
        place = ".".join(subject.new.namespace)
        stage.execute("UPDATE datasets SET iceberg_namespace = %s WHERE id::text = %s", (place, subject.id))
        assert stage.finish(subject) == "done"
        assert stage.pointers(subject) == {subject.new}
        assert stage.control_plane.logged_identifiers(subject.id) == [str(subject.new)]

    def test_the_column_set_elsewhere(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.execute("UPDATE datasets SET iceberg_namespace = 'else.where' WHERE id::text = %s", (subject.id,))
        assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.PLACED_ELSEWHERE

    def test_the_column_set_elsewhere_during_the_attempt_is_not_overwritten(self, stage: Stage) -> None:
        subject = stage.subject()

        def another_hand() -> None:
            stage.execute("UPDATE datasets SET iceberg_namespace = 'else.where' WHERE id::text = %s", (subject.id,))

        with stage.when("load", another_hand, nth=3):
            assert isinstance(stage.attempt(subject), Retry)
        assert stage.control_plane.iceberg_namespace(subject.id) == "else.where"
        stage.catalog.hold(TableIdentifier(("else", "where"), subject.old.name), stage.catalog.names[subject.old])
        assert stage.finish(subject) == "parked"
        assert stage.parked(subject) == ParkCode.PLACED_ELSEWHERE
        assert subject.new not in stage.pointers(subject)
