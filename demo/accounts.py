"""Which account a server runs as, and what that account can reach.

Responsible for: servers that refuse to run as root (Postgres, PgBouncer) run as ``nobody`` then, from folders that
``nobody`` can reach. No permission of a folder that is not ours is changed.
Must not know: which server it is.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from demo.processes import Account, ServiceError

if TYPE_CHECKING:
    from collections.abc import Sequence


def unprivileged() -> Account | None:
    """Whom a server runs as that refuses to run as root: ``nobody`` for root, else ourselves (None)."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


def reachable(folder: Path) -> bool:
    """Whether another account may walk to ``folder`` (it may still be closed itself)."""
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in folder.resolve().parents)


def readable(folder: Path) -> bool:
    """Whether another account may read everything in ``folder``."""
    if not reachable(folder):
        return False
    for path in (folder, *folder.rglob("*")):
        mode = path.stat().st_mode
        wanted = stat.S_IROTH | stat.S_IXOTH if path.is_dir() else stat.S_IROTH
        if mode & wanted != wanted:
            return False
    return True


def private_folder(folder: Path, account: Account | None) -> tuple[Path, bool]:
    """A closed folder for ``account``: ``folder`` itself, or a temporary one where ``account`` cannot walk to it.

    The second value says that it is temporary: whoever asked for it removes it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    temporary = account is not None and not reachable(folder)
    if temporary:
        folder = Path(tempfile.mkdtemp(prefix="reroot-", dir=_open_to_all()))
    folder.chmod(0o700)
    if account is not None:
        os.chown(folder, account.uid, account.gid)
    return folder, temporary


def _open_to_all() -> Path:
    """A folder for temporary folders that every account can walk to; root's own may be closed."""
    candidates = (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - names come from mkdtemp
    for candidate in candidates:
        if candidate.is_dir() and reachable(candidate / "any"):
            return candidate
    raise ServiceError(f"no folder for temporary files can be reached by every account, of {candidates}")


def removed_with(owner: object, folder: Path) -> None:
    """Remove a temporary folder when its owner is gone, at the latest when this process ends in order."""
    weakref.finalize(owner, _remove, folder, os.getpid())


def _remove(folder: Path, by: int) -> None:
    # A forked child inherits the finaliser, not the folder.
    if os.getpid() == by:
        shutil.rmtree(folder, ignore_errors=True)


def readable_copy(parts: Sequence[Path], beside: Path, target: Path) -> Path:
    """A copy of ``parts``, laid out in ``target`` as they lie in ``beside``, that every account may read and run.

    Whatever the umask and the originals' modes.
    """
    if not target.exists():
        half = target.with_name(target.name + ".half")
        shutil.rmtree(half, ignore_errors=True)  # left by a run that was interrupted
        for part in parts:
            shutil.copytree(part, half / part.relative_to(beside), symlinks=True)
        for path in (half, *half.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        half.rename(target)
    return target
