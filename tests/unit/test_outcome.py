"""How long a job waits before its next try."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.outcome import MAX_ATTEMPTS, backoff


def test_it_doubles_and_stays_below_five_minutes() -> None:
    assert [backoff(attempt, 0.5) for attempt in range(1, 9)] == [5, 10, 20, 40, 80, 160, 300, 300]


@given(st.integers(min_value=0, max_value=10_000), st.floats(min_value=0, max_value=1, exclude_max=True))
def test_it_is_spread_by_a_fifth_and_never_overflows(attempt: int, jitter: float) -> None:
    plain = backoff(attempt, 0.5)
    assert 0.8 * plain <= backoff(attempt, jitter) <= 1.2 * plain
    assert 4 <= backoff(attempt, jitter) <= 360


def test_all_attempts_together_take_long_enough_for_a_short_outage() -> None:
    assert sum(backoff(attempt, 0.0) for attempt in range(1, MAX_ATTEMPTS)) > 600
