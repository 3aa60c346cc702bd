"""What an operator orders on the ledger: retry what is parked, rewrite log rows that came late.

Responsible for: transitions *g* and *h*, and the rewrite of a done dataset's late log rows under its lock.
Must not know: how a move is carried out, any catalog, the broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from worker.controlplane.connection import Connection, column_type, translated
from worker.controlplane.facts import EVERYTHING, Scope
from worker.controlplane.scoping import ledger_condition
from worker.moves.machine import State

if TYPE_CHECKING:
    from collections.abc import Sequence

LOCK_SECONDS: Final = 5
"""How long an operator's command queues for a row or for a dataset's lock before it says that it is busy."""

# A parked row has no attempt at it, and a zombie's end is refused by the raised claim.
_RETRY: Final = """
WITH picked AS (
    SELECT dataset_id, claim, flipped_at IS NOT NULL AS flipped, park_code
    FROM reroot.moves
    WHERE state = 'parked' AND (%(codes)s::text[] IS NULL OR park_code = ANY(%(codes)s)) AND {condition}
    ORDER BY dataset_id
    LIMIT %(limit)s
    FOR UPDATE
), retried AS (
    UPDATE reroot.moves m
    SET state = CASE WHEN p.flipped THEN 'flipped' ELSE 'queued' END, claim = m.claim + 1, attempts = 0,
        busy_count = 0, busy_since = NULL, park_code = NULL, park_text = NULL, park_remedy = NULL,
        accepted = m.accepted || array_remove(ARRAY[%(accept)s::text], NULL),
        not_before = now(), published_at = NULL, attempt_started_at = NULL, worker = NULL, waiting_for = NULL,
        updated_at = now()
    FROM picked p
    WHERE m.dataset_id = p.dataset_id AND m.state = 'parked' AND m.claim = p.claim
    RETURNING m.dataset_id, m.claim, m.state, p.flipped, p.park_code
), noted AS (
    INSERT INTO reroot.move_events (dataset_id, claim, event, transition, from_state, to_state, detail)
    SELECT dataset_id, claim, 'requeued', CASE WHEN flipped THEN 'h' ELSE 'g' END, 'parked', state,
           jsonb_strip_nulls(jsonb_build_object('park_code', park_code, 'accepted', %(accept)s::text))
    FROM retried
)
SELECT dataset_id, state, park_code FROM retried ORDER BY dataset_id
"""


_MENDED: Final = "UPDATE reroot.pointers SET outcome = 'returned' WHERE outcome = 'unreadable' AND dataset_id = ANY(%s)"
"""A rename that was taken back is tried again from then on."""


@dataclass(frozen=True, slots=True)
class Retried:
    """A parked dataset that a worker will try again."""

    dataset_id: str
    state: State
    park_code: str


class Late(StrEnum):
    """How the rewrite of late log rows ended, where it rewrote none."""

    NOT_DONE = "not_done"
    """The dataset is not done in direction out, or the resolver no longer names its place."""
    BUSY = "busy"
    """Somebody holds the dataset's lock or rows."""


def retry_datasets(connection: Connection, dataset_ids: Sequence[str], *, mended: bool = False) -> list[Retried]:
    """Queue the parked ones among ``dataset_ids`` again; what is not parked stays as it is.

    ``mended``: an operator says that nothing keeps them any more from being read where they were renamed to and could
    not be read. Raises ControlPlaneError, RowsBusyError where a row stays locked.
    """
    return _retry(connection, Scope(dataset_ids=tuple(dataset_ids)), (), None, mended=mended)


def retry_accepting(connection: Connection, dataset_ids: Sequence[str], code: str) -> list[Retried]:
    """Queue those among ``dataset_ids`` again that are parked with ``code``, and note that an operator accepts it.

    The note stays with the dataset: every later attempt passes over what the code says. Raises as ``retry_datasets``.
    """
    return _retry(connection, Scope(dataset_ids=tuple(dataset_ids)), (code,), None, accept=code)


def retry_codes(
    connection: Connection,
    codes: Sequence[str],
    scope: Scope = EVERYTHING,
    limit: int | None = None,
    *,
    mended: bool = False,
) -> list[Retried]:
    """Queue everything in scope again that is parked with one of ``codes``, or, without codes, for whatever reason.

    At most ``limit``, in the order of the ids. Raises ControlPlaneError, RowsBusyError where a row stays locked.
    """
    return _retry(connection, scope, codes, limit, mended=mended)


def states(connection: Connection, dataset_ids: Sequence[str]) -> dict[str, State]:
    """The ledger's state of each dataset that it knows. Raises ControlPlaneError."""
    with translated():
        rows = connection.execute(
            "SELECT dataset_id, state FROM reroot.moves WHERE dataset_id = ANY(%s)", (list(dataset_ids),)
        ).fetchall()
    return {dataset_id: State(state) for dataset_id, state in rows}


def rewrite_late_rows(connection: Connection, dataset_id: str) -> int | Late:
    """Give the succeeded log rows that a done dataset still has under its old identifier the new one.

    In one transaction under the control plane's own lock, so that no write in flight is named wrongly. Only the
    very identifier that the move left is rewritten: another legacy table's row is no business of this dataset.
    Raises ControlPlaneError.
    """
    with translated(), connection.transaction():
        connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(f"{LOCK_SECONDS}s")))
        # Try first: the wait below ends in an error that would end the transaction.
        held: Any = connection.execute("SELECT pg_try_advisory_xact_lock(hashtext(%s::text))", (dataset_id,)).fetchone()
        if not held[0]:
            return Late.BUSY
        return _rewrite(connection, dataset_id)


def _rewrite(connection: Connection, dataset_id: str) -> int | Late:
    own_id, log_id = (
        column_type(connection, "datasets", "id"),
        column_type(connection, "iceberg_sync_log", "dataset_id"),
    )
    live: Any = connection.execute(
        sql.SQL(
            "SELECT m.claim, m.source_identifier, d.iceberg_namespace || '.' || m.table_name FROM reroot.moves m"
            " JOIN datasets d ON d.id = %(id)s::text::{} AND d.iceberg_namespace = m.target_namespace"
            " WHERE m.dataset_id = %(id)s::text AND m.state = 'done' AND m.direction = 'out' FOR UPDATE OF m"
        ).format(own_id),
        {"id": dataset_id},
    ).fetchone()
    if live is None:
        return Late.NOT_DONE
    claim, left, identifier = live
    rows = connection.execute(
        sql.SQL(
            "UPDATE iceberg_sync_log SET iceberg_table = %s"
            " WHERE dataset_id = %s::{} AND status = 'succeeded' AND iceberg_table = %s"
        ).format(log_id),
        (identifier, dataset_id, left),
    ).rowcount
    if rows:
        connection.execute(
            "INSERT INTO reroot.move_events (dataset_id, claim, event, detail)"
            " VALUES (%s, %s, 'log_rewritten', jsonb_build_object('log_rows', %s::bigint))",
            (dataset_id, claim, rows),
        )
    return rows


def _retry(
    connection: Connection,
    scope: Scope,
    codes: Sequence[str],
    limit: int | None,
    *,
    mended: bool = False,
    accept: str | None = None,
) -> list[Retried]:
    condition, parameters = ledger_condition(scope)
    parameters |= {"codes": list(codes) or None, "limit": limit, "accept": accept}
    with translated(), connection.transaction():
        connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(f"{LOCK_SECONDS}s")))
        rows = connection.execute(sql.SQL(_RETRY).format(condition=condition), parameters).fetchall()
        if mended:
            connection.execute(_MENDED, ([dataset_id for dataset_id, _, _ in rows],))
    return [Retried(dataset_id, State(state), code) for dataset_id, state, code in rows]
