"""Fixtures of the integration tests."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.doctor import Installation
from tests.support.nightly import NIGHTLY
from tests.support.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.controlplane import ControlPlaneFixture

collect_ignore = [] if NIGHTLY else ["test_move_on_nessie.py"]
"""Nessie is large, and slow to start: every night is often enough."""


@pytest.fixture
def stage(database: str, control_plane: ControlPlaneFixture) -> Iterator[Stage]:
    """A real ledger and lock, with a catalog that does what the test says."""
    stage = Stage(database, control_plane)
    yield stage
    stage.close()


@pytest.fixture
def installation(database: str, valkey: str, tmp_path: Path) -> Iterator[Installation]:
    with ExitStack() as leaving:
        yield Installation(database, valkey, tmp_path, leaving)
