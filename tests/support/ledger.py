"""Ledger rows in any state, written as if workers had been there.

Responsible for: putting ``reroot.moves`` where a test of the command line needs it.
Must not know: how a worker gets there; the protocol has tests of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.controlplane import ControlPlaneFixture

UUID = "5f1c0d7e-0000-4000-8000-00000000abcd"


def flip(control_plane: ControlPlaneFixture, dataset: str, *, grace: str = "15 minutes") -> None:
    """A queued dataset is moved: column, log and ledger; its event too."""
    rows = control_plane.execute(
        "UPDATE reroot.moves SET state = 'flipped', claim = claim + 1, table_uuid = %s, snapshot_id = 11,"
        " row_count = 7, flipped_at = now(), not_before = now() + %s::interval"
        " WHERE dataset_id = %s AND state = 'queued' RETURNING target_namespace, claim",
        (UUID, grace, dataset),
    )
    namespace, claim = rows[0]
    control_plane.execute("UPDATE datasets SET iceberg_namespace = %s WHERE id::text = %s", (namespace, dataset))
    control_plane.execute(
        "UPDATE iceberg_sync_log SET iceberg_table = %s || substr(iceberg_table, length('datasets') + 1)"
        " WHERE dataset_id::text = %s AND status = 'succeeded'",
        (namespace, dataset),
    )
    control_plane.execute(
        "INSERT INTO reroot.move_events (dataset_id, claim, event, transition, from_state, to_state, worker)"
        " VALUES (%s, %s, 'flipped', 'b', 'queued', 'flipped', 'worker-1')",
        (dataset, claim),
    )


def finish(control_plane: ControlPlaneFixture, dataset: str, *, direction: str = "out") -> None:
    """A flipped dataset is done."""
    control_plane.execute(
        "UPDATE reroot.moves SET state = 'done', direction = %s, claim = claim + 1, done_at = now()"
        " WHERE dataset_id = %s AND state = 'flipped'",
        (direction, dataset),
    )


def park(control_plane: ControlPlaneFixture, dataset: str, code: str = "name_taken") -> None:
    """A dataset needs a person."""
    control_plane.execute(
        "UPDATE reroot.moves SET state = 'parked', claim = claim + 1, attempts = 3, park_code = %s,"
        " park_text = 'another table has the name', park_remedy = 'rename that table, then reroot retry',"
        " worker = 'worker-1', updated_at = clock_timestamp() WHERE dataset_id = %s",
        (code, dataset),
    )


def take_back(control_plane: ControlPlaneFixture, dataset: str) -> None:
    """A done dataset was reverted."""
    control_plane.execute(
        "UPDATE reroot.moves SET direction = 'back', claim = claim + 1 WHERE dataset_id = %s AND state = 'done'",
        (dataset,),
    )
    control_plane.execute("UPDATE datasets SET iceberg_namespace = NULL WHERE id::text = %s", (dataset,))
    control_plane.execute(
        "UPDATE iceberg_sync_log l SET iceberg_table = m.source_identifier FROM reroot.moves m"
        " WHERE l.dataset_id::text = m.dataset_id AND m.dataset_id = %s AND l.status = 'succeeded'",
        (dataset,),
    )


def worker_alive(control_plane: ControlPlaneFixture, seconds_ago: int = 1) -> None:
    """A worker listens on the queue of moves."""
    control_plane.execute(
        "INSERT INTO reroot.workers (worker, queues, concurrency, seen_at)"
        " VALUES ('worker-1', '{moves}', 8, now() - make_interval(secs => %s))",
        (seconds_ago,),
    )
