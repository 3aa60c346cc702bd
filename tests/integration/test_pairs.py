"""Every dataset whose table two names hold is in ``reroot.pairs``, and so in check and status, whatever its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from producer.closing import Left, closing
from tests.support.stage import raising, unclear
from worker.controlplane import reversal
from worker.controlplane.connection import connect
from worker.controlplane.facts import Scope
from worker.controlplane.planning import stream_facts
from worker.controlplane.reporting import Pairs, status
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.catalog_double import Call
    from tests.support.stage import Stage, Subject


def nothing_yet(stage: Stage, subject: Subject) -> None:
    """Queued, never tried."""


def between_attempts(stage: Stage, subject: Subject) -> None:
    """Registered, and the attempt failed after that."""
    with stage.when("soak", lambda: raising(unclear())):
        stage.attempt(subject)


def in_its_grace(stage: Stage, subject: Subject) -> None:
    stage.attempt(subject)


def done(stage: Stage, subject: Subject) -> None:
    stage.finish(subject)


def diverged_after_the_flip(stage: Stage, subject: Subject) -> None:
    stage.attempt(subject)
    stage.catalog.commit(subject.new)
    stage.catalog.commit(subject.old)
    assert stage.finish(subject) == "parked"


def going_back(stage: Stage, subject: Subject) -> None:
    stage.attempt(subject)
    with psycopg.connect(stage.url, autocommit=True) as operator:
        assert reversal.revert_datasets(operator, [subject.id])


def parked_and_not_to_be_withdrawn(stage: Stage, subject: Subject) -> None:
    def hook(call: Call) -> None:
        if call.method in {"soak", "rename"}:
            raising(CatalogError(ErrorCode.FORBIDDEN, ErrorKind.PERMANENT, "403"))

    stage.catalog.before = hook
    assert stage.finish(subject) == "parked"


def parked_without_a_second_name(stage: Stage, subject: Subject) -> None:
    stage.catalog.create(subject.new)
    assert stage.finish(subject) == "parked"


CASES = [
    (nothing_yet, None, Left.QUEUED),
    (between_attempts, "queued", Left.QUEUED),
    (in_its_grace, "flipped", None),
    (done, None, None),
    (diverged_after_the_flip, "parked", Left.TWO_POINTERS),
    (going_back, "queued", Left.QUEUED),
    (parked_and_not_to_be_withdrawn, "parked", Left.TWO_POINTERS),
    (parked_without_a_second_name, None, Left.PARKED),
]


@pytest.mark.parametrize(("arrange", "state", "left"), CASES)
def test_a_pair_is_counted_in_its_state(
    stage: Stage, arrange: Callable[[Stage, Subject], None], state: str | None, left: Left | None
) -> None:
    subject = stage.subject()
    arrange(stage, subject)
    beside = {str(name) for name in stage.pointers(subject) - {stage.live(subject)}}
    assert {row[0] for row in stage.execute("SELECT identifier FROM reroot.pairs")} == beside
    assert bool(beside) == (state is not None)
    connection = connect(stage.url, role="operator")
    found = closing(stream_facts(connection, Scope()))
    pairs = status(connection).pairs
    connection.close()
    assert found.pairs.examples == ([subject.id] if beside else [])
    assert list(found.left) == ([left] if left else [])
    assert pairs == Pairs(in_grace=state == "flipped", between_attempts=state == "queued", parked=state == "parked")


def test_a_pointer_in_quarantine_is_one(stage: Stage) -> None:
    subject = stage.subject()
    stage.attempt(subject)
    stage.pass_time(subject)
    with stage.when("drop", lambda: raising(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        stage.attempt(subject)
    listed = {row[0] for row in stage.execute("SELECT identifier FROM reroot.pairs")}
    assert {str(name) for name in stage.pointers(subject) - {subject.new}} <= listed
