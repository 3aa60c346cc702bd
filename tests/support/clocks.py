"""A clock that stands still until the test moves it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def a_clock_of_its_own(module: str) -> Iterator[Callable[[float], None]]:
    """Time that passes for the module that is named only when the test says so, or when it sleeps; in seconds."""
    now = time.monotonic()

    def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    with mock.patch(f"{module}.time", SimpleNamespace(monotonic=lambda: now, sleep=pass_time)):
        yield pass_time
