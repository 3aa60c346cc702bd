"""How long this run of the tests may take: ``make quick``, ``make test`` or ``make nightly``."""

from __future__ import annotations

import os
from typing import Final

# The switches of a test run, not settings of the program.
NIGHTLY: Final = os.environ.get("REROOT_TEST_NIGHTLY") == "1"  # noqa: TID251 - see above
QUICK: Final = os.environ.get("REROOT_TEST_QUICK") == "1"  # noqa: TID251 - see above
"""Under a minute: nothing is started, and what is enumerated or random is a part of it."""
