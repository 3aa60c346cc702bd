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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def run_folder(parent: Path) -> Iterator[Path]:
    """A fresh folder below ``parent``; removed at the end, unless the run failed: then its logs are wanted.

    An interrupted run has not failed.
    """
    parent.mkdir(parents=True, exist_ok=True)
    with _turn(parent):
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
        lock = (folder / "lock").open("w", encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_EX)
    with lock:
        failed = False
        try:
            yield folder
        except Exception:
            failed = True
            raise
        finally:
            if not failed:
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _turn(parent: Path) -> Iterator[None]:
    """One run at a time looks for dead folders and makes its own: a new one that is not locked yet would look dead."""
    with (parent / "turn").open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(parent: Path) -> None:
    """Remove the folders of runs that have ended."""
    for folder in parent.glob("run-*"):
        if _dead(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _dead(folder: Path) -> bool:
    """Whether nobody lives there: a run locks its folder, and the kernel lets go of it however the run ends."""
    try:
        with (folder / "lock").open("r", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True  # killed before it was locked, or being removed by its own run just now
    except BlockingIOError:
        return False
    return True
