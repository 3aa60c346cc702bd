"""Which attempts are alive: those whose own backend holds their dataset's lock.

Responsible for: this one condition, for every statement that needs it.
Must not know: what is done about an attempt that is dead.
"""

from __future__ import annotations

from typing import Final

LIVING: Final = (
    # The one-bigint key space shows its key in two halves; a hash below zero fills the upper one with ones.
    "(hashtext(dataset_id)::bigint, coalesce(lock_pid, 0)) IN ("
    "SELECT (classid::bigint << 32) | objid::bigint, pid FROM pg_locks"
    " WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid IS NOT NULL"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
)
"""The attempt of this row of ``reroot.moves`` holds its lock. A writer holds the same lock by another backend. One look
at the locks serves all rows of a statement."""
