"""Publishes as the producer does, when told: ``python -m benchmarks.publisher``.

Responsible for: one top-up per line on standard input, and the moment before it, on standard output.
Must not know: what is published.

A process of its own because Celery's settings are read from the environment when it is imported.
"""

from __future__ import annotations

import json
import sys
import time

from producer import reach
from worker.settings import load_settings


def main() -> None:
    """Publish once per line."""
    settings = load_settings()
    with reach.controlplane(settings) as connection:
        print("ready", flush=True)
        for _ in sys.stdin:
            began = time.time()
            sent = reach.publish(settings, connection)
            print(json.dumps({"began": began, "sent": sent}), flush=True)


if __name__ == "__main__":
    main()
