"""What is known of warehouses: how tables are moved in each, and whether it is away.

Responsible for: rows of ``reroot.warehouses`` and ``reroot.tenants`` as an operator reads and sets them.
Must not know: how a strategy is found out, any catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from worker.controlplane.connection import translated
from worker.moves.ports import Strategy

if TYPE_CHECKING:
    from worker.controlplane.connection import Connection


@dataclass(frozen=True, slots=True)
class Warehouse:
    """One warehouse. ``away_for`` is in seconds, since when it has not answered; None: it answers."""

    name: str
    strategy: Strategy | None
    set_by_operator: bool
    reason: str | None
    away_for: float | None
    away_because: str | None


def known_warehouses(connection: Connection) -> list[Warehouse]:
    """Every warehouse that anything is known of, by name. Raises ControlPlaneError."""
    with translated():
        rows = connection.execute(
            "SELECT warehouse, strategy, set_by_operator, reason,"
            " CASE WHEN down_until IS NOT NULL THEN extract(epoch FROM now() - down_since)::float8 END, down_reason"
            " FROM reroot.warehouses ORDER BY warehouse"
        ).fetchall()
    return [
        Warehouse(name, None if strategy is None else Strategy(strategy), given, reason, away, because)
        for name, strategy, given, reason, away, because in rows
    ]


def set_strategy(connection: Connection, warehouse: str, strategy: Strategy | None) -> None:
    """An operator's word; None gives the finding out back to the workers, from the start. Raises ControlPlaneError."""
    reason = None if strategy is None else "set by an operator"
    with translated():
        connection.execute(
            "INSERT INTO reroot.warehouses (warehouse, strategy, set_by_operator, reason)"
            " VALUES (%(warehouse)s, %(strategy)s, %(given)s, %(reason)s)"
            " ON CONFLICT (warehouse) DO UPDATE SET strategy = excluded.strategy, reason = excluded.reason,"
            " set_by_operator = excluded.set_by_operator, refused = '{}', updated_at = now()",
            {
                "warehouse": warehouse,
                "strategy": None if strategy is None else strategy.value,
                "given": strategy is not None,
                "reason": reason,
            },
        )


def tenant_warehouse(connection: Connection, workspace_id: str) -> str | None:
    """The workspace's own warehouse, where it is not the one that the settings give. Raises ControlPlaneError."""
    with translated():
        row: Any = connection.execute(
            "SELECT warehouse FROM reroot.tenants WHERE workspace_id = %s", (workspace_id,)
        ).fetchone()
    return None if row is None else str(row[0])
