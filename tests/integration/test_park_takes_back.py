"""A park before the flip leaves no registration of ours, or says that two pointers exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.stage import raising, unclear
from worker.identifiers import TableIdentifier
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind, SoakFault
from worker.outcome import ParkCode, Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.catalog_double import Call
    from tests.support.stage import Stage, Subject

pytestmark = pytest.mark.every_postgres

FORBIDDEN = CatalogError(ErrorCode.FORBIDDEN, ErrorKind.PERMANENT, "403")
REFUSED = CatalogError(ErrorCode.INVALID, ErrorKind.PERMANENT, "400")


def at_the_soak(stage: Stage, error: Exception) -> None:
    def hook(call: Call) -> None:
        if call.method == "soak":
            raising(error)

    stage.catalog.before = hook


def broken(stage: Stage, subject: Subject) -> None:
    stage.catalog.broken[stage.catalog.names[subject.old]] = SoakFault.DAMAGED


def forbidden(stage: Stage, _: Subject) -> None:
    at_the_soak(stage, FORBIDDEN)


def refused(stage: Stage, _: Subject) -> None:
    at_the_soak(stage, REFUSED)


def unreadable(stage: Stage, _: Subject) -> None:
    at_the_soak(stage, unclear())


def moving(stage: Stage, subject: Subject) -> None:
    def hook(call: Call) -> None:
        if call.method == "soak":
            stage.catalog.commit(subject.old, schema_only=True)

    stage.catalog.before = hook


def killed(stage: Stage, subject: Subject) -> None:
    stage.execute("UPDATE reroot.moves SET attempts = 9")
    with stage.when("soak", lambda: raising(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        stage.attempt(subject)


def placed_elsewhere(stage: Stage, subject: Subject) -> None:
    with stage.when("soak", lambda: raising(unclear())):
        stage.attempt(subject)
    stage.catalog.hold(TableIdentifier(("else", "where"), subject.old.name), stage.catalog.names[subject.old])
    stage.execute("UPDATE datasets SET iceberg_namespace = 'else.where' WHERE id::text = %s", (subject.id,))


CASES = [
    (broken, ParkCode.SOAK_FAILED),
    (forbidden, ParkCode.FORBIDDEN),
    (refused, ParkCode.REFUSED),
    (unreadable, ParkCode.TABLE_UNREADABLE),
    (moving, ParkCode.SOURCE_MOVING),
    (killed, ParkCode.EXHAUSTED),
    (placed_elsewhere, ParkCode.PLACED_ELSEWHERE),
]


@pytest.mark.parametrize(("spoil", "code"), CASES)
def test_our_registration_is_withdrawn_first(
    stage: Stage, spoil: Callable[[Stage, Subject], None], code: ParkCode
) -> None:
    subject = stage.subject()
    spoil(stage, subject)
    assert stage.finish(subject) == "parked"
    assert stage.parked(subject) == code
    assert subject.new not in stage.pointers(subject)
    assert stage.live(subject) in stage.pointers(subject)
    assert stage.open_entries(subject) == []


def test_a_registration_that_was_refused_for_good_leaves_no_open_entry(stage: Stage) -> None:
    subject = stage.subject()
    with stage.when("register", lambda: raising(REFUSED)):
        assert stage.finish(subject) == "parked"
    assert stage.parked(subject) == ParkCode.REFUSED
    assert stage.pointers(subject) == {subject.old}
    assert stage.open_entries(subject) == []


def test_what_cannot_be_withdrawn_is_said_and_stays_in_the_journal(stage: Stage) -> None:
    subject = stage.subject()

    def hook(call: Call) -> None:
        if call.method in {"soak", "rename"}:
            raising(FORBIDDEN)

    stage.catalog.before = hook
    assert stage.finish(subject) == "parked"
    assert stage.parked(subject) == ParkCode.FORBIDDEN
    assert f"two pointers exist: {subject.new} was not withdrawn: 403" in stage.row(subject)["park_text"]
    assert stage.pointers(subject) == {subject.old, subject.new}
    assert stage.open_entries(subject) == [("register",)]


def test_a_commit_through_the_registration_is_never_given_up(stage: Stage) -> None:
    subject = stage.subject()
    broken(stage, subject)
    stage.execute("UPDATE reroot.moves SET attempts = 9")
    with stage.when("soak", lambda: (stage.catalog.commit(subject.new), stage.catalog.commit(subject.old))):
        assert stage.finish(subject) == "parked"
    assert stage.parked(subject) == ParkCode.DIVERGED
    assert stage.pointers(subject) == {subject.old, subject.new}


def test_an_outage_meanwhile_delays_the_park(stage: Stage) -> None:
    subject = stage.subject()
    broken(stage, subject)
    stage.execute("UPDATE reroot.moves SET attempts = 9")
    away = CatalogError(ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT, "503")

    def hook(call: Call) -> None:
        if call.method != "soak" and "soak" in stage.methods():
            raising(away)

    stage.catalog.before = hook
    assert isinstance(stage.attempt(subject), Wait)
    stage.catalog.before = lambda _: None
    stage.execute("UPDATE reroot.warehouses SET down_until = now() - interval '1 second'")
    assert stage.finish(subject) == "parked"
    assert stage.parked(subject) == ParkCode.SOAK_FAILED
    assert stage.pointers(subject) == {subject.old}
