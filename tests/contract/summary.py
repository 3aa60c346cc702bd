"""What the contract tests say at the end of a run."""

from __future__ import annotations

from typing import Final

import pytest

RECORDINGS: Final = pytest.StashKey[list[str]]()
"""One line for each recording that was asked again."""
