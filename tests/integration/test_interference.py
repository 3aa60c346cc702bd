"""Somebody interferes at every call of a move, on both sides of its effect: nothing that was acknowledged is lost.

Enumerated, not sampled: each call of a clean move's two attempts, both moments, each interference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.support.crashing import Moment, Points, Watched
from worker.identifiers import TableIdentifier
from worker.moves.attempt import Mover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.stage import Stage, Subject


pytestmark = pytest.mark.timeout(300)


def watched_attempt(stage: Stage, subject: Subject, points: Points) -> None:
    """One attempt with ``points`` around every call of both ports."""
    mover = stage.mover
    watched = Mover(
        Watched(mover.controlplane, "ledger", points), Watched(stage.lakehouse, "lakehouse", points), stage.policy
    )
    watched.attempt(subject.id)


@dataclass
class Run:
    """One move with one interference."""

    stage: Stage
    subject: Subject
    where: str
    committed: str | None = None
    """The metadata location of a commit that its writer was told is done."""

    def commit(self, identifier: TableIdentifier) -> None:
        """An engine that ignores the lock commits through ``identifier``, if it can."""
        if identifier in self.stage.catalog.names:
            self.committed = self.stage.catalog.commit(identifier)

    def reachable(self, identifier: TableIdentifier) -> set[str]:
        """Every metadata location in the history of what the name points to."""
        location = self.stage.catalog.names.get(identifier)
        return set() if location is None else {location, *self.stage.catalog.files[location].log}

    def lost(self) -> list[str]:
        """What is wrong at the end."""
        stage, subject = self.stage, self.subject
        state, live = stage.row(subject)["state"], stage.live(subject)
        pointers = stage.pointers(subject)
        anywhere = {location for name in pointers for location in self.reachable(name)}
        wrong = {
            "the resolver's name holds no table": live in pointers,
            "an acknowledged commit is not under the live name, and nobody was told": (
                self.committed is None or state == "parked" or self.committed in self.reachable(live)
            ),
            "an acknowledged commit is under no name at all": self.committed is None or self.committed in anywhere,
            f"state {state}": state in {"done", "parked"},
            f"done with {pointers}": state != "done" or pointers == {live},
        }
        return [f"{self.where}: {what}" for what, right in wrong.items() if not right]


def calls(stage: Stage) -> list[list[str]]:
    """The calls of a clean move's two attempts."""
    stage.finish(stage.subject())  # the first move of a warehouse also notes what it found out about it
    subject, both = stage.subject(), (Points(), Points())
    for points in both:
        watched_attempt(stage, subject, points)
        stage.pass_time(subject)
    assert stage.row(subject)["state"] == "done"
    return [points.calls for points in both]


def every_run(stage: Stage, interfere: Callable[[Run], object]) -> Iterator[Run]:
    """A move for each call and moment, interfered with there, then attempted until it ends."""
    for attempt, names in enumerate(calls(stage)):
        for at, name in enumerate(names):
            for moment in Moment:
                subject = stage.subject()
                run = Run(stage, subject, f"{moment} {name} (attempt {attempt}, call {at})")
                if attempt == 1:
                    stage.attempt(subject)
                    stage.pass_time(subject)
                points = Points(at, moment, partial(interfere, run))
                watched_attempt(stage, subject, points)
                stage.finish(subject)
                assert len(points.calls) > at, run.where
                yield run


def test_an_engine_that_commits_through_the_old_name(stage: Stage) -> None:
    runs = list(every_run(stage, lambda run: run.commit(run.subject.old)))
    assert [what for run in runs for what in run.lost()] == []
    assert sum(run.committed is not None for run in runs) > len(runs) / 2
    assert {stage.row(run.subject)["state"] for run in runs} == {"done", "parked"}


def test_an_engine_that_commits_through_the_new_name(stage: Stage) -> None:
    runs = list(every_run(stage, lambda run: run.commit(run.subject.new)))
    assert [what for run in runs for what in run.lost()] == []
    assert {stage.row(run.subject)["state"] for run in runs} == {"done"}


def test_an_engine_that_commits_through_both_names(stage: Stage) -> None:
    """Each commit is acknowledged; after two on different sides somebody must be told."""

    def both(run: Run) -> None:
        run.commit(run.subject.new)
        run.commit(run.subject.old)

    runs = list(every_run(stage, both))
    assert [what for run in runs for what in run.lost()] == []


def test_somebody_drops_the_new_name(stage: Stage) -> None:
    """Seen before the withdrawal, it keeps the old pointer; later, the journal says where to put it back to."""

    def drop(run: Run) -> None:
        if len(stage.pointers(run.subject)) > 1:
            stage.catalog.names.pop(run.subject.new, None)

    kept = 0
    for run in every_run(stage, drop):
        kept += bool(stage.pointers(run.subject))
        journaled = stage.execute(
            "SELECT metadata_location FROM reroot.pointers WHERE dataset_id = %s AND action = 'withdraw'",
            (run.subject.id,),
        )
        assert stage.pointers(run.subject) or set(journaled) & {(location,) for location in stage.catalog.files}, (
            run.where
        )
    assert kept > len(Moment)


def test_another_hand_sets_the_column(stage: Stage) -> None:
    """Before the flip it is never overwritten, and afterwards the pointer that it names is never withdrawn."""

    def another_hand(run: Run) -> None:
        stage.catalog.hold(elsewhere(run.subject), stage.catalog.names[next(iter(stage.pointers(run.subject)))])
        stage.execute("UPDATE datasets SET iceberg_namespace = 'else.where' WHERE id::text = %s", (run.subject.id,))

    def elsewhere(subject: Subject) -> TableIdentifier:
        return TableIdentifier(("else", "where"), subject.old.name)

    for run in every_run(stage, another_hand):
        assert stage.control_plane.iceberg_namespace(run.subject.id) == "else.where", run.where
        assert elsewhere(run.subject) in stage.pointers(run.subject), run.where


def test_the_lock_s_connection_is_cut(stage: Stage) -> None:
    def cut(run: Run) -> None:
        stage.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'reroot-lock'")

    for run in every_run(stage, cut):
        assert run.lost() == []
        assert stage.row(run.subject)["state"] == "done", run.where
