"""What a worker's parts are held to, as the settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.settings import load_settings
from worker.wiring import build

if TYPE_CHECKING:
    import pytest


def test_the_leash_of_a_rename_is_longer_than_the_requests_of_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rename and the look, either of which may take as long as a request is allowed to, and connect as long."""
    monkeypatch.setenv("REROOT_DATABASE_URL", "postgresql://localhost/x")
    monkeypatch.setenv("REROOT_BROKER_URL", "redis://localhost/0")
    monkeypatch.setenv("REROOT_CATALOG_URI", "http://localhost")
    monkeypatch.setenv("REROOT_WAREHOUSE", "w")
    monkeypatch.setenv("REROOT_CATALOG_TIMEOUT_SECONDS", "7")
    runtime = build(load_settings(), "worker-1")
    assert runtime.mover.policy.window_seconds > 2 * (7 + 7)
