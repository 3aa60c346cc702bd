"""An open rename, whose table readers miss, is the next thing that any process does, whatever its message says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.doorbell_double import DoorbellDouble
from tests.support.stage import Stage, Subject, raising
from worker.controlplane.connection import connect
from worker.controlplane.topup import top_up
from worker.messages import Queue
from worker.moves.ports import Strategy
from worker.outcome import Busy, Done, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.moves.attempt import Mover


class Renaming:
    """A stage that renames, a sweeper whose queue is always full, and what the attempts at urgent datasets ended in."""

    def __init__(self, stage: Stage) -> None:
        stage.policy = replace(stage.policy, strategy=Strategy.RENAME, queue_for_seconds=0.2)
        self.stage = stage
        self.ended: list[Outcome] = []
        self.mover = replace(stage.new_mover(), ended=self.ended.append)
        self.sweeping = connect(stage.url, role="test")

    def sweep(self) -> list[str]:
        """A round in which the window has no room; what was sent."""
        doorbell = DoorbellDouble()
        doorbell.waiting.append("another")
        top_up(self.sweeping, Queue.MOVES, doorbell, window=1, republish_after=120, longest_attempt=180)
        return doorbell.sent

    def killed_in_the_window(self) -> Subject:
        """A dataset whose attempt died between the rename and the flip."""
        subject = self.stage.subject()
        mover = self.stage.new_mover("worker-killed")
        with (
            self.stage.when("rename", lambda: raising(KeyboardInterrupt()), after=True),
            pytest.raises(KeyboardInterrupt),
        ):
            mover.attempt(subject.id)
        return subject

    def state(self, subject: Subject) -> str:
        return str(self.stage.row(subject)["state"])


@pytest.fixture
def renaming(stage: Stage) -> Iterator[Renaming]:
    made = Renaming(stage)
    yield made
    made.sweeping.close()


def test_a_message_of_another_dataset_settles_what_is_urgent_first(renaming: Renaming) -> None:
    urgent, other = [renaming.killed_in_the_window() for _ in range(2)], renaming.stage.subject()
    assert set(renaming.sweep()) == {subject.id for subject in urgent}
    renaming.stage.catalog.calls.clear()
    assert renaming.mover.attempt(other.id) == Done("done")
    assert renaming.ended == [Done("done")] * 2
    assert [renaming.stage.live(subject) for subject in urgent] == [subject.new for subject in urgent]
    assert renaming.stage.methods()[0] == "load"
    assert renaming.stage.catalog.calls[0].arguments[0] in {subject.new for subject in urgent}
    assert renaming.sweep() == []


def test_what_another_process_took_is_left_to_it(renaming: Renaming) -> None:
    urgent, other = renaming.killed_in_the_window(), renaming.stage.subject()
    renaming.sweep()
    first: Mover = renaming.stage.new_mover("worker-2")
    move = renaming.mover.controlplane.peek(other.id)
    assert move is not None
    assert first.attempt(urgent.id) == Done("done")
    assert not renaming.mover.controlplane.take(urgent.id)
    assert renaming.mover.attempt(other.id) == Done("done")
    assert renaming.ended == []


def test_a_writer_that_holds_the_lock_of_an_urgent_dataset_holds_up_nothing_else(renaming: Renaming) -> None:
    urgent, other = renaming.killed_in_the_window(), renaming.stage.subject()
    with renaming.stage.writing(urgent):
        assert renaming.sweep() == [urgent.id], "the writer's lock is not the dead attempt's"
        assert renaming.mover.attempt(other.id) == Done("done")
        assert [type(outcome) for outcome in renaming.ended] == [Busy]
        assert renaming.sweep() == [], "it waits a few seconds"
    renaming.stage.pass_time(urgent)
    assert renaming.sweep() == [urgent.id]
    assert renaming.mover.attempt(urgent.id) == Done("done")


def test_an_attempt_at_an_urgent_dataset_queues_for_its_lock(renaming: Renaming) -> None:
    """A try never wins against writers that queue."""
    asked: list[float | None] = []
    urgent, other = renaming.killed_in_the_window(), renaming.stage.subject()
    renaming.sweep()
    plane = renaming.mover.controlplane
    lock = plane.lock

    def watching(dataset_id: str, *, queue_for: float | None) -> object:
        asked.append(queue_for)
        return lock(dataset_id, queue_for=queue_for)

    plane.lock = watching  # type: ignore[method-assign,assignment]  # to see what it is asked
    assert renaming.mover.attempt(other.id) == Done("done")
    assert asked == [0.2, None]
    assert renaming.stage.live(urgent) == urgent.new
