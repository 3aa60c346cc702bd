"""The worker's app, with processes that are late: they start to work only when their worker has died.

Started as ``celery -A tests.support.late_tasks worker``. From when the file ``REROOT_TEST_LATE`` exists, a process of
the pool that starts waits, before it asks the kernel to die with its worker, until that worker is gone.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import platforms

from worker.app import app

__all__ = ["app"]

LATE = Path(os.environ["REROOT_TEST_LATE"])  # noqa: TID251 - a test's own variable
PATIENCE = 60

_set_pdeathsig = platforms.set_pdeathsig


def set_pdeathsig(name: str) -> None:
    """As ever, but too late."""
    parent, deadline = os.getppid(), time.monotonic() + PATIENCE
    while LATE.exists() and os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(0.01)
    _set_pdeathsig(name)


platforms.set_pdeathsig = set_pdeathsig
