"""One dataset's whole story, for ``reroot show`` and for the end of a canary.

Responsible for: its ledger row, its events, its open journal entries, its log's figures. Reads only.
Must not know: how it is shown, what to advise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from worker.controlplane.connection import column_type, translated
from worker.identifiers import TableIdentifier, quarantine_identifier
from worker.moves.machine import Direction, State

if TYPE_CHECKING:
    from datetime import datetime

    from worker.controlplane.connection import Connection


@dataclass(frozen=True, slots=True)
class DatasetNames:
    """What people call a dataset, and whose it is."""

    name: str | None
    workspace_id: str


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """The ledger's row as a person needs it. ``due_in`` is in seconds; negative: due since."""

    dataset_id: str
    workspace_id: str
    state: State
    direction: Direction
    claim: int
    attempts: int
    busy_count: int
    legacy_identifier: str
    placed_identifier: str
    table_uuid: str | None
    snapshot_id: int | None
    row_count: int | None
    planned_at: datetime
    flipped_at: datetime | None
    done_at: datetime | None
    due_in: float
    running: bool
    worker: str | None
    waiting_for: str | None
    park_code: str | None
    park_text: str | None
    park_remedy: str | None
    warehouse: str | None
    """Where the last attempt found the table; None before the first."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the history."""

    at: datetime
    event: str
    transition: str | None
    from_state: str | None
    to_state: str | None
    worker: str | None
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OpenEntry:
    """A pointer that was about to be made or taken away when the attempt ended: enough to put it back by hand."""

    id: int
    action: str
    identifier: str
    quarantine: str
    """Where the pointer stands while it is being withdrawn."""
    warehouse: str
    table_uuid: str
    metadata_location: str
    opened_at: datetime


@dataclass(frozen=True, slots=True)
class LogFigures:
    """The last succeeded log row: what the control plane believes of the table."""

    iceberg_table: str | None
    snapshot_id: int | None
    row_count: int | None


def ledger_row(connection: Connection, dataset_id: str) -> LedgerRow | None:
    """The row, or None where the dataset was never planned. Raises ControlPlaneError."""
    with translated():
        row: Any = connection.execute(_LEDGER_ROW, (dataset_id,)).fetchone()
    return LedgerRow(row[0], row[1], State(row[2]), Direction(row[3]), *row[4:]) if row else None


def dataset_names(connection: Connection, dataset_id: str) -> DatasetNames | None:
    """The dataset's name and workspace; None where ``datasets`` does not hold it. Raises ControlPlaneError."""
    kind = column_type(connection, "datasets", "id")
    with translated():
        row: Any = connection.execute(
            sql.SQL("SELECT name, workspace_id::text FROM datasets WHERE id = %s::{}").format(kind), (dataset_id,)
        ).fetchone()
    return DatasetNames(*row) if row else None


def events(connection: Connection, dataset_id: str) -> list[Event]:
    """Every event, oldest first. Raises ControlPlaneError."""
    with translated():
        rows: Any = connection.execute(
            "SELECT at, event, transition, from_state, to_state, worker, detail FROM reroot.move_events"
            " WHERE dataset_id = %s ORDER BY id",
            (dataset_id,),
        ).fetchall()
    return [Event(*row) for row in rows]


def open_entries(connection: Connection, dataset_id: str) -> list[OpenEntry]:
    """The journal's open entries, oldest first. Raises ControlPlaneError."""
    with translated():
        rows: Any = connection.execute(
            "SELECT id, action, namespace, table_name, warehouse, table_uuid, metadata_location, opened_at"
            " FROM reroot.pointers WHERE dataset_id = %s AND closed_at IS NULL ORDER BY id",
            (dataset_id,),
        ).fetchall()
    return [
        OpenEntry(
            number,
            action,
            str(TableIdentifier.within(namespace, name)),
            str(quarantine_identifier(name, number)),
            *rest,
        )
        for number, action, namespace, name, *rest in rows
    ]


def last_log_row(connection: Connection, dataset_id: str) -> LogFigures | None:
    """The figures of the last succeeded log row; None where there is none. Raises ControlPlaneError."""
    kind = column_type(connection, "iceberg_sync_log", "dataset_id")
    with translated():
        row: Any = connection.execute(
            sql.SQL(
                "SELECT iceberg_table, snapshot_id, row_count FROM iceberg_sync_log"
                " WHERE dataset_id = %s::{} AND status = 'succeeded'"
                " ORDER BY coalesce(finished_at, started_at) DESC NULLS LAST, id DESC LIMIT 1"
            ).format(kind),
            (dataset_id,),
        ).fetchone()
    return LogFigures(*row) if row else None


_LEDGER_ROW: Final = """
SELECT dataset_id, workspace_id, state, direction, claim, attempts, busy_count, source_identifier,
       target_namespace || '.' || table_name, table_uuid, snapshot_id, row_count, planned_at, flipped_at, done_at,
       extract(epoch FROM not_before - now())::float8, attempt_started_at IS NOT NULL, worker, waiting_for,
       park_code, park_text, park_remedy, warehouse
FROM reroot.moves
WHERE dataset_id = %s
"""
