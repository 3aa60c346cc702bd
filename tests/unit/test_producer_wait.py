"""Waiting: when it ends, how often it asks, and the figures beside the bar."""

from __future__ import annotations

from producer.wait import MANY, POLL_SECONDS, SLOW_POLL_SECONDS, Progress, wait
from producer.waiting_room import figures, summary
from worker.moves.machine import State


class Ledger:
    """Answers in turn, and a clock that moves only when somebody pauses."""

    def __init__(self, *answers: dict[str, State | None]) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []
        self.now = 100.0
        self.pauses: list[float] = []

    def ask(self, ids: list[str]) -> dict[str, State | None]:
        self.asked.append(ids)
        return self.answers.pop(0)

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def run(self, ids: list[str]) -> list[tuple[int, float]]:
        seen = []
        for progress in wait(ids, self.ask, clock=lambda: self.now, pause=self.pause):
            self.progress = progress
            seen.append((progress.settled, progress.elapsed))
        return seen


def test_it_ends_when_each_is_flipped_done_or_parked() -> None:
    ledger = Ledger({"a": State.FLIPPED}, {}, {"b": State.DONE, "c": State.PARKED})
    assert ledger.run(["a", "b", "c"]) == [(1, 0.0), (1, 1.0), (3, 2.0)]
    assert ledger.progress.parked == ["c"]
    assert ledger.pauses == [POLL_SECONDS] * 2


def test_it_asks_only_for_what_is_still_open() -> None:
    ledger = Ledger({"b": State.FLIPPED}, {"a": State.FLIPPED})
    ledger.run(["b", "a", "b"])
    assert ledger.asked == [["a", "b"], ["a"]]


def test_a_large_batch_is_asked_for_less_often() -> None:
    ids = [str(number) for number in range(MANY + 1)]
    ledger = Ledger({}, dict.fromkeys(ids, State.FLIPPED))
    ledger.run(ids)
    assert ledger.pauses == [SLOW_POLL_SECONDS]


def test_rate_and_remaining_time() -> None:
    progress = Progress(total=30, elapsed=5.0)
    assert (progress.rate, progress.remaining) == (None, None)
    assert figures(progress) == "-/s  waiting  0 parked"
    progress.counts[State.FLIPPED] = 10
    assert (progress.rate, progress.remaining) == (2.0, 10.0)
    assert figures(progress) == "2.0/s  10 s left  0 parked"


def test_the_summary_names_each_end() -> None:
    progress = Progress(total=3, elapsed=125.0)
    progress.counts.update({State.PARKED: 1, State.FLIPPED: 2})
    assert summary(progress) == "flipped 2, parked 1 in 2 min."
