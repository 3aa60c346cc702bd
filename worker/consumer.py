"""Celery's consumer, with one of its habits mended.

Responsible for: sending events by the handful.
Must not know: what a task does. ``celeryconfig`` names this class; nothing imports it.
"""

from __future__ import annotations

import time
from typing import Final

from celery.worker.consumer import Consumer as CelerysConsumer

EVENT_PAUSE: Final = 0.25
"""Seconds that events are gathered for. One by one they took a third of the main process's time, and each child waits
for that process between two jobs."""


class Consumer(CelerysConsumer):  # type: ignore[misc]  # Celery has no types
    """What ``celery -A worker.app worker`` consumes with."""

    _gathered_at = 0.0

    def on_send_event_buffered(self) -> None:
        """Send what has gathered in a moment. Events that come until then go along."""
        now = time.monotonic()
        if self.hub and now >= self._gathered_at:
            self._gathered_at = now + EVENT_PAUSE
            self.timer.call_after(EVENT_PAUSE, self._flush_events)
