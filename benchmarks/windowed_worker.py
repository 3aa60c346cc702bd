"""A worker that notes the window of each rename: ``celery -A benchmarks.windowed_worker``.

Responsible for: the very same app and tasks, and when the flip's writes began, the rename was answered, and the commit
was answered. Must not know: what is done with the figures. They go into one file per process, a line per rename.
"""

from __future__ import annotations

import functools
import json
import os
import time
from pathlib import Path
from typing import Any, Final

from worker.app import app
from worker.controlplane.lock import PostgresLock
from worker.lakehouse.rest import RestCatalog

__all__ = ["app"]

FOLDER: Final = "REROOT_TEST_TIMINGS"
_at: Final[dict[str, float]] = {}


def _noting(owner: Any, method: str) -> None:
    call = getattr(owner, method)

    @functools.wraps(call)
    def noted(*arguments: Any, **named: Any) -> Any:
        _at[method + " begun"] = time.perf_counter()
        answer = call(*arguments, **named)
        _at[method] = time.perf_counter()
        if method == "commit" and "rename" in _at:
            # The environment of a measuring run, not a setting of the program.
            folder = os.environ[FOLDER]  # noqa: TID251 - see the line above
            with Path(folder, str(os.getpid())).open("a", encoding="utf-8") as file:
                file.write(json.dumps(_at) + "\n")
            _at.clear()
        return answer

    setattr(owner, method, noted)


_noting(PostgresLock, "reserve")
_noting(RestCatalog, "rename")
_noting(PostgresLock, "commit")
