"""What a run of the tests leaves out, and why.

Responsible for: one way to leave a test out, which a run that may leave nothing out (``REROOT_TEST_NO_SKIP=1``) turns
into a failure.
Must not know: what is missing on this machine.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def nothing_may_be_left_out() -> bool:
    """Whether this run fails when it leaves anything out, as the build does."""
    # The switch of a test run, not a setting of the program.
    return os.environ.get("REROOT_TEST_NO_SKIP") == "1"  # noqa: TID251 - see the line above


def leave_out(reason: str) -> NoReturn:
    """Leave the current test out because this machine lacks something; ``reason`` says what, and how to get it."""
    if nothing_may_be_left_out():
        pytest.fail(f"left out, and nothing may be: {reason}", pytrace=False)
    pytest.skip(reason)
