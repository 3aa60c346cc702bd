"""Another hand creates a table under the name that a move has left, before its withdrawal or in the middle of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.stage import raising, unclear
from worker.controlplane import operations
from worker.identifiers import QUARANTINE_NAMESPACE
from worker.outcome import ParkCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.stage import Stage, Subject

pytestmark = pytest.mark.every_postgres


def by_id(operator: psycopg.Connection, subject: Subject) -> None:
    assert operations.retry_datasets(operator, [subject.id])


def by_code(operator: psycopg.Connection, subject: Subject) -> None:
    assert operations.retry_codes(operator, ["withdrawal_doubtful"])


@pytest.fixture
def operator(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def left_in_quarantine(stage: Stage) -> tuple[Subject, str]:
    """An acknowledged commit through the left name, fenced, and the name taken before it could go back."""
    subject = stage.subject()
    stage.attempt(subject)
    acknowledged = stage.catalog.commit(subject.old)
    stage.pass_time(subject)
    with stage.when("rename", lambda: stage.catalog.create(subject.old), after=True):
        stage.attempt(subject)
    assert stage.parked(subject) == ParkCode.WITHDRAWAL_DOUBTFUL
    return subject, acknowledged


def in_quarantine(stage: Stage) -> list[str]:
    return [location for name, location in stage.catalog.names.items() if name.namespace == (QUARANTINE_NAMESPACE,)]


@pytest.mark.parametrize("retry", [by_id, by_code])
def test_a_retry_never_ends_done_beside_it(
    stage: Stage, operator: psycopg.Connection, retry: Callable[[psycopg.Connection, Subject], None]
) -> None:
    subject, acknowledged = left_in_quarantine(stage)
    foreign = stage.catalog.names[subject.old]
    for _ in range(2):
        retry(operator, subject)
        assert stage.finish(subject) == "parked"
        assert in_quarantine(stage) == [acknowledged]
        assert stage.catalog.names[subject.old] == foreign


@pytest.mark.parametrize("retry", [by_id, by_code])
def test_once_the_name_is_free_a_retry_puts_it_back_and_says_what_it_holds(
    stage: Stage, operator: psycopg.Connection, retry: Callable[[psycopg.Connection, Subject], None]
) -> None:
    subject, acknowledged = left_in_quarantine(stage)
    del stage.catalog.names[subject.old]
    retry(operator, subject)
    assert stage.finish(subject) == "parked"
    assert stage.parked(subject) == ParkCode.DIVERGED
    assert stage.catalog.names[subject.old] == acknowledged
    assert in_quarantine(stage) == []


def retried(stage: Stage, subject: Subject) -> None:
    with stage.when("load", lambda: raising(unclear())):
        stage.attempt(subject)


def logged(stage: Stage, subject: Subject) -> None:
    stage.control_plane.log(subject.id, iceberg_table=str(subject.old), snapshot_id=1)


def overdue(stage: Stage, _: Subject) -> None:
    stage.execute("UPDATE reroot.moves SET resolver_changed_at = now() - interval '1 day'")


def fenced_by_a_dead_attempt(stage: Stage, subject: Subject) -> None:
    with stage.when("rename", lambda: raising(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        stage.attempt(subject)


@pytest.mark.parametrize("hint", [retried, logged, overdue, fenced_by_a_dead_attempt])
def test_another_table_under_the_left_name_is_not_moved_for_a_moment(
    stage: Stage, hint: Callable[[Stage, Subject], None]
) -> None:
    subject = stage.subject()
    stage.attempt(subject)
    stage.pass_time(subject)
    hint(stage, subject)
    stage.pass_time(subject)
    del stage.catalog.names[subject.old]
    foreign = stage.catalog.create(subject.old)
    stage.catalog.calls.clear()
    assert stage.finish(subject) == "parked"
    assert stage.parked(subject) == ParkCode.SOURCE_REPLACED
    assert stage.catalog.names[subject.old] == foreign
    assert not {"rename", "drop"} & {*stage.methods()}


def test_where_nothing_hints_at_another_hand_a_retirement_costs_four_requests(stage: Stage) -> None:
    subject = stage.subject()
    stage.attempt(subject)
    stage.pass_time(subject)
    stage.catalog.calls.clear()
    assert stage.finish(subject) == "done"
    assert stage.methods() == ["load", "create_namespace", "rename", "load", "drop"]  # the namespace once per process


def test_another_table_that_was_fenced_goes_back_at_once(stage: Stage) -> None:
    subject = stage.subject()
    stage.attempt(subject)
    stage.pass_time(subject)
    del stage.catalog.names[subject.old]
    foreign = stage.catalog.create(subject.old)
    assert stage.finish(subject) == "parked"
    assert stage.parked(subject) == ParkCode.SOURCE_REPLACED
    assert stage.catalog.names[subject.old] == foreign
