"""What an operator takes out of the ledger before it has begun.

Responsible for: transition *j*, and why a dataset stays.
Must not know: any catalog, the broker: a message about a row that is gone does nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from psycopg import sql

from worker.controlplane.connection import Connection, translated
from worker.controlplane.reversal import FRESH
from worker.controlplane.scoping import ledger_condition

if TYPE_CHECKING:
    from worker.controlplane.facts import Scope

_STAYS: Final = """
CASE WHEN m.state <> 'queued' THEN 'not_queued'
     WHEN m.direction = 'back' THEN 'going_back'
     WHEN m.attempt_started_at IS NOT NULL THEN 'running'
     WHEN m.given_up IS NOT NULL
       OR EXISTS (SELECT FROM reroot.pointers p WHERE p.dataset_id = m.dataset_id AND p.closed_at IS NULL)
     THEN 'open_entry' END
"""

# Rows that an attempt holds are skipped: it has begun. `returned` was moved and taken back before this order.
_CANCEL: Final = """
WITH picked AS (
    SELECT m.dataset_id, m.claim, m.resolver_changed_at IS NOT NULL AS returned
    FROM reroot.moves m
    WHERE ({stays}) IS NULL AND {condition}
    ORDER BY m.dataset_id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM reroot.moves m USING picked p
    WHERE m.dataset_id = p.dataset_id AND m.state = 'queued' AND m.claim = p.claim AND NOT p.returned
    RETURNING m.dataset_id, m.claim + 1 AS claim, NULL AS to_state
), ended AS (
    UPDATE reroot.moves m
    SET state = 'done', direction = 'back', done_at = now(), {fresh}
    FROM picked p
    WHERE m.dataset_id = p.dataset_id AND m.state = 'queued' AND m.claim = p.claim AND p.returned
    RETURNING m.dataset_id, m.claim, 'done'
), cancelled AS (
    SELECT * FROM removed UNION ALL SELECT * FROM ended
), noted AS (
    INSERT INTO reroot.move_events (dataset_id, claim, event, transition, from_state, to_state)
    SELECT dataset_id, claim, 'cancelled', 'j', 'queued', to_state FROM cancelled
)
SELECT dataset_id FROM cancelled ORDER BY dataset_id
"""

_STAYING: Final = """
SELECT m.dataset_id, coalesce({stays}, 'running')
FROM reroot.moves m
WHERE (%(ids)s::text[] IS NOT NULL OR m.state = 'queued') AND {condition}
ORDER BY m.dataset_id
"""


class Stays(StrEnum):
    """Why a move is not cancelled."""

    NOT_QUEUED = "not_queued"
    """It is flipped, done or parked."""
    GOING_BACK = "going_back"
    """It is queued to be taken back."""
    RUNNING = "running"
    """An attempt is at it, or died at it and is settled by the next one."""
    OPEN_ENTRY = "open_entry"
    """A pointer of an earlier attempt may stand, or a decided divergence is to be carried out."""


def cancel(connection: Connection, scope: Scope, limit: int | None) -> list[str]:
    """Take every move in scope out of the ledger that is queued and not begun; their ids. Raises ControlPlaneError."""
    condition, parameters = ledger_condition(scope)
    query = sql.SQL(_CANCEL).format(stays=sql.SQL(_STAYS), condition=condition, fresh=sql.SQL(FRESH))
    with translated(), connection.transaction():
        return [row[0] for row in connection.execute(query, {**parameters, "limit": limit}).fetchall()]


def staying(connection: Connection, scope: Scope) -> dict[str, Stays]:
    """Why moves in scope stay: of given ids each, else what is queued. Raises ControlPlaneError."""
    condition, parameters = ledger_condition(scope)
    query = sql.SQL(_STAYING).format(stays=sql.SQL(_STAYS), condition=condition)
    with translated():
        rows = connection.execute(query, {"ids": None, **parameters}).fetchall()
    return {dataset_id: Stays(why) for dataset_id, why in rows}
