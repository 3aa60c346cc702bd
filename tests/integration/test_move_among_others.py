"""A move among others: locks, retirement, deleted datasets, warehouses that are away."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.stage import WAREHOUSE, Stage, Subject, raising, unclear
from worker.identifiers import QUARANTINE_NAMESPACE, TableIdentifier
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind, SoakFault
from worker.outcome import Busy, Done, Park, ParkCode, Retry, Wait

pytestmark = pytest.mark.every_postgres


class TestLocks:
    def test_a_writer_that_holds_the_lock_costs_no_attempt(self, stage: Stage) -> None:
        subject = stage.subject()
        with stage.writing(subject):
            for _ in range(2):
                assert isinstance(stage.attempt(subject), Busy)
                stage.pass_time(subject)
        row = stage.row(subject)
        assert (row["attempts"], row["busy_count"]) == (0, 2)
        assert row["busy_since"] is not None
        assert stage.attempt(subject) == Done("flipped")
        assert stage.row(subject)["busy_since"] is None

    def test_a_writer_that_holds_its_log_row_and_waits_for_the_lock_does_not_die(self, stage: Stage) -> None:
        subject = stage.subject()
        with psycopg.connect(stage.url) as writer:
            writer.execute("UPDATE iceberg_sync_log SET row_count = 11 WHERE dataset_id::text = %s", (subject.id,))
            assert isinstance(stage.attempt(subject), Busy)
            writer.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (subject.id,))
        assert stage.row(subject)["attempts"] == 0
        assert stage.finish(subject) == "done"

    def test_two_workers_on_one_dataset_have_one_effect(self, stage: Stage) -> None:
        subject = stage.subject()
        second = stage.new_mover("worker-2")
        seen: list[object] = []
        with stage.when("register", lambda: seen.append(second.attempt(subject.id))):
            assert stage.attempt(subject) == Done("flipped")
        assert isinstance(seen[0], Busy)
        assert [m for m in stage.methods() if m == "register"] == ["register"]
        assert stage.row(subject)["claim"] == 1

    def test_the_same_message_while_the_first_runs_writes_nothing(self, stage: Stage) -> None:
        subject = stage.subject()
        second = stage.new_mover("worker-2")

        def again() -> None:
            before = stage.everything()
            for _ in range(10):
                second.attempt(subject.id)
            assert stage.everything() == before

        with stage.when("register", again):
            stage.attempt(subject)

    def test_a_zombies_end_changes_nothing(self, stage: Stage) -> None:
        subject = stage.subject()

        def operator() -> None:
            stage.execute("UPDATE reroot.moves SET claim = claim + 1 WHERE dataset_id = %s", (subject.id,))

        with stage.when("soak", operator):
            assert isinstance(stage.attempt(subject), Retry)
        assert stage.live(subject) == subject.old
        assert stage.row(subject)["state"] == "queued"
        assert stage.control_plane.logged_identifiers(subject.id) == [str(subject.old)]

    @pytest.mark.parametrize("request_that_removes", ["rename", "drop"])
    def test_a_cut_lock_connection_removes_no_pointer(self, stage: Stage, request_that_removes: str) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        stage.pass_time(subject)
        previous = {"rename": "load", "drop": "load"}[request_that_removes]

        def cut() -> None:
            stage.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'reroot-lock'"
            )

        stage.catalog.calls.clear()
        with stage.when(previous, cut, nth=1 if request_that_removes == "rename" else 2):
            assert isinstance(stage.attempt(subject), Retry)
        assert request_that_removes not in stage.methods()
        assert stage.finish(subject) == "done"
        assert stage.pointers(subject) == {subject.new}


class TestRetirement:
    def test_the_new_name_dropped_during_the_grace_keeps_the_old_one(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        del stage.catalog.names[subject.new]
        stage.pass_time(subject)
        assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.TABLE_MISSING
        assert stage.pointers(subject) == {subject.old}

    def test_another_table_under_the_live_name_keeps_the_old_one(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        del stage.catalog.names[subject.new]
        stage.catalog.create(subject.new)
        stage.pass_time(subject)
        assert isinstance(stage.attempt(subject), Park)
        assert stage.pointers(subject) == {subject.old}

    def test_an_old_metadata_file_cleaned_up_during_the_grace(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        registered = stage.catalog.names[subject.old]
        stage.catalog.log_length = 1
        for _ in range(3):
            stage.catalog.commit(subject.new)
        stage.catalog.delete_file(registered)
        assert stage.finish(subject) == "done"
        assert subject.old not in stage.catalog.names

    @pytest.mark.parametrize("why", ["it names another file", "storage has the file", "the live name was set back"])
    def test_an_old_metadata_file_that_only_seems_missing_parks_it(self, stage: Stage, why: str) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        location = "file:///elsewhere" if why == "it names another file" else None
        missing = CatalogError(ErrorCode.FILE_MISSING, ErrorKind.PERMANENT, "no such file", location=location)
        if why == "the live name was set back":
            registered = stage.catalog.names[subject.old]
            stage.catalog.commit(subject.new)
            stage.catalog.delete_file(registered)
            stage.execute("UPDATE reroot.moves SET old_sequence_number = 99")
        stage.pass_time(subject)
        with stage.when("rename", lambda: raising(missing)):
            assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.WITHDRAWAL_DOUBTFUL
        assert stage.catalog.names.keys() >= {subject.old, subject.new}

    def test_a_quarantine_that_died_is_due_at_once_and_finished(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        stage.pass_time(subject)
        with stage.when("drop", lambda: raising(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
            stage.attempt(subject)
        assert [name.namespace for name in stage.pointers(subject)].count((QUARANTINE_NAMESPACE,)) == 1
        assert stage.attempt(subject) == Done("done")
        assert stage.pointers(subject) == {subject.new}

    def test_a_pointer_in_quarantine_goes_back_when_the_resolver_names_its_place(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        stage.pass_time(subject)
        with stage.when("drop", lambda: raising(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
            stage.attempt(subject)
        stage.execute("UPDATE datasets SET iceberg_namespace = NULL WHERE id::text = %s", (subject.id,))
        stage.attempt(subject)
        assert subject.old in stage.pointers(subject)
        assert stage.parked(subject) == ParkCode.PLACED_ELSEWHERE

    def test_the_live_pointer_is_never_withdrawn(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        stage.pass_time(subject)

        def back_by_hand() -> None:
            stage.execute("UPDATE datasets SET iceberg_namespace = NULL WHERE id::text = %s", (subject.id,))

        with stage.when("load", back_by_hand):
            assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.WITHDRAWAL_DOUBTFUL
        assert stage.pointers(subject) == {subject.old, subject.new}


class TestDeletedAndChanged:
    def test_a_schema_changed_twice_between_attempts_leaves_one_pointer(self, stage: Stage) -> None:
        subject = stage.subject()
        places = []
        for name in ("Asia", "Africa"):
            with stage.when("soak", lambda: raising(unclear())):
                stage.attempt(subject)
            stage.pass_time(subject)
            schema = stage.control_plane.schema(stage.control_plane.catalog(subject.workspace, name), name)
            places.append(stage.control_plane.place(schema))
            stage.execute("UPDATE datasets SET schema_id = %s WHERE id::text = %s", (schema, subject.id))
        last = TableIdentifier.within(places[-1], subject.old.name)
        assert stage.attempt(subject) == Done("flipped")
        assert stage.pointers(subject) == {subject.old, last}
        assert stage.finish(subject) == "done"
        assert stage.pointers(subject) == {last}
        assert stage.open_entries(subject) == []

    @pytest.mark.parametrize(
        ("deleted", "code"),
        [
            ("DELETE FROM datasets WHERE id::text = %(dataset)s", ParkCode.DATASET_DELETED),
            ("UPDATE datasets SET schema_id = NULL WHERE id::text = %(dataset)s", ParkCode.NO_PLACE),
        ],
    )
    def test_deleted_before_the_flip_withdraws_our_pointers(self, stage: Stage, deleted: str, code: ParkCode) -> None:
        subject = stage.subject()
        with stage.when("soak", lambda: raising(unclear())):
            stage.attempt(subject)
        assert stage.pointers(subject) == {subject.old, subject.new}
        self._execute(stage, subject, "DELETE FROM iceberg_sync_log WHERE dataset_id::text = %(dataset)s")
        self._execute(stage, subject, deleted)
        assert stage.finish(subject) == "parked"
        assert stage.parked(subject) == code
        assert stage.pointers(subject) == {subject.old}

    def test_a_dataset_deleted_after_the_flip_keeps_both_pointers(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        self._execute(stage, subject, "DELETE FROM iceberg_sync_log WHERE dataset_id::text = %(dataset)s")
        self._execute(stage, subject, "DELETE FROM datasets WHERE id::text = %(dataset)s")
        assert stage.finish(subject) == "parked"
        assert stage.parked(subject) == ParkCode.DATASET_DELETED
        assert stage.pointers(subject) == {subject.old, subject.new}

    def test_a_schema_taken_away_after_the_flip_changes_nothing(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.attempt(subject)
        self._execute(stage, subject, "UPDATE datasets SET schema_id = NULL WHERE id::text = %(dataset)s")
        assert stage.finish(subject) == "done"
        assert stage.live(subject) == subject.new

    @staticmethod
    def _execute(stage: Stage, subject: Subject, statement: str) -> None:
        with psycopg.connect(stage.url, autocommit=True) as connection:
            connection.execute(statement.encode(), {"dataset": subject.id})


class TestWarehouses:
    def test_a_broken_table_among_good_ones_parks_alone(self, stage: Stage) -> None:
        good, bad = stage.subject(), stage.subject()
        stage.catalog.broken[stage.catalog.names[bad.old]] = SoakFault.DAMAGED
        assert stage.finish(good) == "done"
        assert stage.finish(bad) == "parked"
        assert stage.parked(bad) == ParkCode.SOAK_FAILED
        assert stage.live(bad) == bad.old

    def test_a_table_that_cannot_be_loaded_while_its_warehouse_answers(self, stage: Stage) -> None:
        bad, good = stage.subject(), stage.subject()

        def hook(call: object) -> None:
            if getattr(call, "arguments", None) == (bad.old,):
                raise CatalogError(ErrorCode.UNCLEAR, ErrorKind.UNKNOWN, "500")

        stage.catalog.before = hook
        assert stage.finish(bad) == "parked"
        assert stage.parked(bad) == ParkCode.TABLE_UNREADABLE
        assert stage.finish(good) == "done"

    def test_a_server_that_can_load_no_table_is_away(self, stage: Stage) -> None:
        one, _ = stage.subject(), stage.subject()

        def hook(call: object) -> None:
            if getattr(call, "method", None) == "load":
                raise CatalogError(ErrorCode.UNCLEAR, ErrorKind.TRANSIENT, "500: storage timed out")

        stage.catalog.before = hook
        assert isinstance(stage.attempt(one), Wait)
        assert stage.row(one)["attempts"] == 0
        [[why]] = stage.execute("SELECT down_reason FROM reroot.warehouses WHERE down_until IS NOT NULL")
        assert "storage timed out" in why

    def test_a_warehouse_that_is_away_costs_no_attempt_and_is_asked_by_one(self, stage: Stage) -> None:
        subjects = [stage.subject() for _ in range(3)]
        refused = CatalogError(ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT, "connection refused")
        stage.catalog.before = lambda _: raising(refused)
        for subject in subjects:
            assert isinstance(stage.attempt(subject), Wait)
            stage.pass_time(subject)
        assert len(stage.catalog.calls) == 2  # the first job's load, and its question after the warehouse
        assert {stage.row(subject)["attempts"] for subject in subjects} == {0}

        stage.catalog.calls.clear()
        stage.execute("UPDATE reroot.warehouses SET down_until = now() - interval '1 second'")
        for subject in subjects:
            assert isinstance(stage.attempt(subject), Wait)
            stage.pass_time(subject)
        assert len(stage.catalog.calls) == 2

        stage.catalog.before = lambda _: None
        stage.execute("UPDATE reroot.warehouses SET down_until = now() - interval '1 second'")
        assert [stage.attempt(subject) for subject in subjects] == [Done("flipped")] * 3
        assert stage.execute("SELECT down_until FROM reroot.warehouses WHERE warehouse = %s", (WAREHOUSE,)) == [(None,)]

    def test_attempts_run_out(self, stage: Stage) -> None:
        subject = stage.subject()
        stage.execute("UPDATE reroot.moves SET attempts = 10")
        assert isinstance(stage.attempt(subject), Park)
        assert stage.parked(subject) == ParkCode.EXHAUSTED

    def test_after_the_deadline_nothing_is_begun(self, stage: Stage) -> None:
        subject = stage.subject()
        now = 0.0
        stage.policy = type(stage.policy)(clock=lambda: now, jitter=lambda: 0.5)
        stage.mover = stage.new_mover()

        def late() -> None:
            nonlocal now
            now = 1_000.0

        with stage.when("load", late):
            assert isinstance(stage.attempt(subject), Retry)
        assert "register" not in stage.methods()
