"""Writing planned moves into the ledger, in bulk.

Responsible for: transitions *a* (planned) and, for what a revert took back and a person wants moved again, *i*; each
with its event, in one transaction a batch.
Must not know: why a dataset was chosen, the broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.controlplane.connection import Connection, translated

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """What the ledger is told about one planned move."""

    dataset_id: str
    workspace_id: str
    source_identifier: str
    table_name: str
    target_namespace: str
    claim: int | None
    """The claim of the ledger's row that was taken back; None where there is none yet."""


_BATCH = """
CREATE TEMPORARY TABLE reroot_batch (
    dataset_id text NOT NULL,
    workspace_id text NOT NULL,
    source_identifier text NOT NULL,
    table_name text NOT NULL,
    target_namespace text NOT NULL,
    claim bigint
) ON COMMIT DROP
"""

# A move that was cancelled left its events: no claim is ever given twice.
# In the ids' order, so that two who plan the same datasets at once wait for each other and never deadlock.
_PLAN = """
WITH planned AS (
    INSERT INTO reroot.moves (dataset_id, workspace_id, source_identifier, table_name, target_namespace, claim)
    SELECT dataset_id, workspace_id, source_identifier, table_name, target_namespace,
           coalesce((SELECT max(e.claim) FROM reroot.move_events e WHERE e.dataset_id = b.dataset_id), 0)
    FROM pg_temp.reroot_batch b
    WHERE claim IS NULL
    ORDER BY dataset_id
    ON CONFLICT (dataset_id) DO NOTHING
    RETURNING dataset_id, claim, source_identifier, target_namespace
)
INSERT INTO reroot.move_events (dataset_id, claim, event, transition, to_state, detail)
SELECT dataset_id, claim, 'planned', 'a', 'queued',
       jsonb_build_object('source', source_identifier, 'target_namespace', target_namespace)
FROM planned
"""

_PLAN_AGAIN = """
WITH planned AS (
    UPDATE reroot.moves m
    SET state = 'queued', direction = 'out', claim = m.claim + 1, attempts = 0, busy_count = 0, busy_since = NULL,
        source_identifier = b.source_identifier, table_name = b.table_name, target_namespace = b.target_namespace,
        table_uuid = NULL, old_location = NULL, old_sequence_number = NULL, snapshot_id = NULL, row_count = NULL,
        flipped_at = NULL, done_at = NULL, given_up = NULL, planned_at = now(), not_before = now(), published_at = NULL,
        attempt_started_at = NULL, worker = NULL, waiting_for = NULL, updated_at = now()
    FROM pg_temp.reroot_batch b
    WHERE m.dataset_id = b.dataset_id AND m.state = 'done' AND m.direction = 'back' AND m.claim = b.claim
    RETURNING m.dataset_id, m.claim, m.source_identifier, m.target_namespace
)
INSERT INTO reroot.move_events (dataset_id, claim, event, transition, from_state, to_state, detail)
SELECT dataset_id, claim, 'planned', 'i', 'done', 'queued',
       jsonb_build_object('source', source_identifier, 'target_namespace', target_namespace)
FROM planned
"""


def enqueue(connection: Connection, rows: Iterable[PlannedRow]) -> int:
    """Write one batch and commit; how many are new. What the ledger has meanwhile stays as it is.

    Raises ControlPlaneError; the batch is then written whole or not at all.
    """
    with translated(), connection.transaction(), connection.cursor() as cursor:
        cursor.execute(_BATCH)
        with cursor.copy("COPY pg_temp.reroot_batch FROM STDIN") as copy:
            for row in rows:
                copy.write_row(
                    (
                        row.dataset_id,
                        row.workspace_id,
                        row.source_identifier,
                        row.table_name,
                        row.target_namespace,
                        row.claim,
                    )
                )
        planned = cursor.execute(_PLAN).rowcount
        return planned + cursor.execute(_PLAN_AGAIN).rowcount
