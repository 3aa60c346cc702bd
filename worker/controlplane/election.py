"""Who sweeps: one at a time, for as long as one round takes.

Responsible for: the election's advisory lock, and the key space that it lives in.
Must not know: what the winner does.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from worker.controlplane.connection import translated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.controlplane.connection import Connection

CLASS: Final = 0x5265726F
"""The first of two integers. One-integer keys are the datasets' own: a key of ours there would be some dataset's."""

SWEEP: Final = 1

LONGEST_ROUND_SECONDS: Final = 60
"""A winner whose node is lost gives the lock back after this."""


@contextmanager
def elected(connection: Connection) -> Iterator[bool]:
    """Whether this one sweeps now; the lock is held within. ``connection`` does nothing else meanwhile.

    A transaction's lock, so that it ends with the round whatever happens to it. Raises ControlPlaneError.
    """
    with translated(), connection.transaction():
        connection.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, true)",
            (str(LONGEST_ROUND_SECONDS * 1000),),
        )
        row: Any = connection.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", (CLASS, SWEEP)).fetchone()
        yield row[0]
