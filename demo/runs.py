"""The folder that one run of the demo lives in.

Responsible for: a folder per run, so that two runs do not meet, and the removal of folders whose run is over, however
it ended.
Must not know: what lies in them.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def run_folder(parent: Path) -> Iterator[Path]:
    """A fresh folder below ``parent``; removed at the end, unless the run failed: then its logs are wanted.

    An interrupted run has not failed.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    with (folder / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        failed = False
        try:
            yield folder
        except Exception:
            failed = True
            raise
        finally:
            if not failed:
                shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove the folders of runs that have ended; a lock says which still run."""
    for lock in parent.glob("run-*/lock"):
        with lock.open("r", encoding="utf-8") as file:
            if _free(file):
                shutil.rmtree(lock.parent, ignore_errors=True)


def _free(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
