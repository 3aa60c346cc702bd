"""Whether this is the long run (``make nightly``)."""

from __future__ import annotations

import os
from typing import Final

NIGHTLY: Final = os.environ.get("REROOT_TEST_NIGHTLY") == "1"  # noqa: TID251 - says how long the tests may take
