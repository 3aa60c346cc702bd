"""The end of a canary: both identifiers, uuid, snapshot and row count before and after, and the next command.

Responsible for: reading and showing these for the few datasets that were moved by name.
Must not know: how they were moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from producer.screen import age
from worker.controlplane import history
from worker.moves.machine import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from producer.screen import Screen
    from worker.controlplane.connection import Connection

CANARY: Final = 10
"""So many datasets are shown one by one; more than that is a batch."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What the last succeeded log row says of a table before the move."""

    snapshot_id: int | None
    row_count: int | None


def figures(connection: Connection, dataset_id: str) -> Figures | None:
    """The figures as they are now; None where the log has none. Raises ControlPlaneError."""
    row = history.last_log_row(connection, dataset_id)
    return Figures(row.snapshot_id, row.row_count) if row else None


def show_canary(connection: Connection, before: Mapping[str, Figures | None], screen: Screen) -> None:
    """One block for each dataset, then what to do next. Raises ControlPlaneError."""
    stuck = ""
    for dataset_id, figure in before.items():
        row = history.ledger_row(connection, dataset_id)
        if row is not None:
            screen.line()
            _show(row, figure, screen)
            stuck = stuck or (dataset_id if row.state is State.PARKED else "")
    screen.line()
    if stuck:
        screen.line(f"Next: reroot show {stuck}")
    else:
        screen.line("Next: reroot move --all --limit 100 --wait")


def _show(row: history.LedgerRow, before: Figures | None, screen: Screen) -> None:
    screen.heading(f"{row.dataset_id}  {row.state}")
    screen.line(f"  old name  {row.legacy_identifier}{_until(row)}")
    screen.line(f"  new name  {row.placed_identifier}")
    screen.line(f"  uuid      {row.table_uuid or '-'}")
    if row.flipped_at is not None:
        log = before or Figures(None, None)
        screen.line(f"  snapshot  {_number(log.snapshot_id)} before, {_number(row.snapshot_id)} after")
        screen.line(f"  rows      {_number(log.row_count)} before, {_number(row.row_count)} after")
    if row.park_code is not None:
        screen.line(f"  {row.park_code}: {row.park_text}")
        screen.line(f"  {row.park_remedy}")


def _until(row: history.LedgerRow) -> str:
    if row.state is State.FLIPPED:
        return f"  (until the grace ends, in {age(row.due_in)})"
    return "  (withdrawn)" if row.state is State.DONE else ""


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
