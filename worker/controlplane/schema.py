"""Whether a database has been migrated, asked without Alembic: a worker asks at every start.

Responsible for: the revision of a database, and those that this version knows.
Must not know: what a migration does (``migrate``).
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.controlplane.connection import ControlPlaneRefusedError, connect, translated

if TYPE_CHECKING:
    from worker.controlplane.connection import Connection


class NotMigratedError(ControlPlaneRefusedError):
    """The database is not at the revision that this version needs. One line, with the command that helps."""


def revisions() -> list[str]:
    """The revisions that this version knows, oldest first; the last is the one that it needs."""
    return sorted(path.name[:4] for path in (Path(__file__).parent / "migrations" / "versions").glob("[0-9]*.py"))


def require_migrated(url: str) -> None:
    """Return where a worker can start: at this version's revision or, in the course of an upgrade, at a later one.

    Raises NotMigratedError, ControlPlaneAwayError.
    """
    with closing(connect(url, role="worker")) as connection:
        revision = _revision(connection)
    if revision is None or revision in revisions()[:-1]:
        raise NotMigratedError(behind(revision))


def behind(revision: str | None) -> str:
    """What to do about a database that is at another revision than this version's, in one line."""
    known = revisions()
    where = f"the database is at revision {revision or 'none'}, this version needs {known[-1]}"
    later = revision is not None and revision not in known
    return f"{where}: " + ("install the version of Reroot that upgraded it" if later else "reroot db upgrade")


def _revision(connection: Connection) -> str | None:
    with translated():
        there: Any = connection.execute("SELECT to_regclass('reroot.alembic_version')").fetchone()
        if there[0] is None:
            return None
        row: Any = connection.execute("SELECT version_num FROM reroot.alembic_version").fetchone()
    return row[0] if row else None
