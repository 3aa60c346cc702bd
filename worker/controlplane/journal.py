"""The journal of pointers: what we intend to make or to take away, committed before the request.

Responsible for: rows of ``reroot.pointers``, opened and closed on the second connection, each committed at once.
Must not know: why a pointer is made or withdrawn.
"""

from __future__ import annotations

from typing import Any, Final

from worker.controlplane.connection import Connection, translated
from worker.identifiers import TableIdentifier
from worker.moves.ports import Action, Claimed, Closed, Entry, LockLostError, Pointer

_OPEN: Final = """
WITH known AS (
    UPDATE reroot.moves SET table_uuid = %(uuid)s
    WHERE dataset_id = %(dataset)s AND claim = %(claim)s AND table_uuid IS NULL
)
INSERT INTO reroot.pointers
    (dataset_id, claim, action, namespace, table_name, warehouse, table_uuid, metadata_location, sequence_number)
SELECT dataset_id, claim, %(action)s, %(namespace)s, %(name)s, %(warehouse)s, %(uuid)s, %(location)s, %(sequence)s
FROM reroot.moves WHERE dataset_id = %(dataset)s AND claim = %(claim)s
RETURNING id,
    CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
"""
"""Nothing where the claim was taken over: an attempt that stood still leaves no entry in a job that has ended. The
commit waits for the disk behind a pooler too, whatever the database has as a default: a request follows."""

_CLOSE: Final = """
UPDATE reroot.pointers SET closed_at = clock_timestamp(), outcome = %s WHERE id = %s AND closed_at IS NULL
RETURNING set_config('synchronous_commit', 'off', true)
"""
"""Committed without waiting for the disk: what comes after it does wait, and an entry that a crash of Postgres opens
again is one whose process died before it closed it."""

ENTRIES_OF: Final = """
(SELECT json_agg(json_build_array(p.id, p.action, p.namespace, p.table_name, p.table_uuid, p.metadata_location,
                                  p.sequence_number, extract(epoch FROM clock_timestamp() - p.opened_at)::float8)
                 ORDER BY p.id)
 FROM reroot.pointers p WHERE p.dataset_id = %(dataset)s AND p.closed_at IS NULL)
"""
"""A scalar subquery: the open entries of one dataset, for ``entries``."""


def open_entry(connection: Connection, claimed: Claimed, action: Action, pointer: Pointer) -> Entry:
    """Write down the intention; committed when this returns. The ledger keeps the first uuid it is told.

    Raises LockLostError where the claim was taken over, and ControlPlaneError.
    """
    with translated():
        row: Any = connection.execute(
            _OPEN,
            {
                "dataset": claimed.move.dataset_id,
                "claim": claimed.move.claim,
                "action": action.value,
                "namespace": ".".join(pointer.identifier.namespace),
                "name": pointer.identifier.name,
                "warehouse": claimed.dataset.warehouse,
                "uuid": pointer.table_uuid,
                "location": pointer.metadata_location,
                "sequence": pointer.sequence_number,
            },
        ).fetchone()
    if row is None:
        raise LockLostError("the claim was taken over: nothing more is begun")
    return Entry(row[0], action, pointer)


def close_entry(connection: Connection, entry: Entry, how: Closed) -> None:
    """Write down how it ended; an entry that is closed already keeps its first end. Raises ControlPlaneError."""
    with translated():
        connection.execute(_CLOSE, (how.value, entry.id))


_UNREADABLE: Final = """
SELECT EXISTS (SELECT FROM reroot.pointers WHERE dataset_id = %s AND outcome = 'unreadable'
               AND namespace = %s AND table_name = %s)
"""


def was_unreadable(connection: Connection, claimed: Claimed, identifier: TableIdentifier) -> bool:
    """Whether the table was renamed to this name and back, for it could not be read there. Raises ControlPlaneError."""
    with translated():
        row: Any = connection.execute(
            _UNREADABLE, (claimed.move.dataset_id, ".".join(identifier.namespace), identifier.name)
        ).fetchone()
    return bool(row[0])


def entries(rows: list[list[Any]] | None) -> tuple[Entry, ...]:
    """The entries that ``ENTRIES_OF`` selected."""
    return tuple(
        Entry(
            number,
            Action(action),
            Pointer(TableIdentifier.within(namespace, name), uuid, location, sequence),
            opened_ago,
        )
        for number, action, namespace, name, uuid, location, sequence, opened_ago in rows or ()
    )
