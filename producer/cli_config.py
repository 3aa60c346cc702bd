"""``reroot config``: the settings, without their secrets, and where each came from.

Responsible for: the command.
Must not know: the settings (``worker.settings`` masks them).
"""

from __future__ import annotations

from producer.screen import Screen
from worker.settings import describe, load_settings


def config() -> None:
    """Show every setting, secrets masked, and where it came from."""
    screen = Screen()
    for variable, value, origin in describe(load_settings()):
        screen.line(f"{variable} = {value}")
        if origin != "default":
            screen.line(f"  from {origin}")
