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
STAND_IN: Final = 3
"""For whoever sweeps instead, while a winner neither ends its round nor is ended by Postgres."""

LONGEST_ROUND_SECONDS: Final = 30
"""A winner whose node is lost gives the lock back after this."""


@contextmanager
def elected(connection: Connection, *, stand_in: bool = False) -> Iterator[int | None]:
    """Whether this one sweeps now; the lock is held within. ``connection`` does nothing else meanwhile.

    Yields the lock that was won; ``STAND_IN`` only where it is asked for and the other is not free. None: neither.

    A transaction's lock, so that it ends with the round whatever happens to it. Raises ControlPlaneError.
    """
    with translated(), connection.transaction():
        connection.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, true)",
            (str(LONGEST_ROUND_SECONDS * 1000),),
        )
        for lock in (SWEEP, STAND_IN) if stand_in else (SWEEP,):
            row: Any = connection.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", (CLASS, lock)).fetchone()
            if row[0]:
                yield lock
                return
        yield None
