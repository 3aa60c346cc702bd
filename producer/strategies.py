"""How tables are moved in each warehouse, and whose word that is: pure.

Responsible for: which of three words counts (an operator's, the setting's, what was found out), and warehouses that are
alike in a few lines, since there may be one for each of thousands of tenants.
Must not know: SQL, the screen, how a strategy is found out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from worker.moves.ports import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from worker.controlplane.warehouses import Warehouse

AUTO: Final = "auto"
"""The setting that leaves it to what is found out."""

NAMED: Final = 3
"""So many warehouses of a group are called by their names."""


@dataclass(frozen=True, slots=True)
class InForce:
    """How one warehouse's tables are moved from now on. ``strategy`` is None while nobody knows."""

    warehouse: str
    strategy: Strategy | None
    reason: str
    set_by_operator: bool


def in_force(known: Warehouse, setting: str) -> InForce:
    """An operator's word for the warehouse goes before the setting, and the setting before what was found out."""
    if known.set_by_operator or setting == AUTO:
        return InForce(known.name, known.strategy, known.reason or "", known.set_by_operator)
    return InForce(known.name, Strategy(setting), f"REROOT_STRATEGY={setting}", set_by_operator=False)


def told(warehouses: Iterable[InForce]) -> list[str]:
    """A line for each strategy with its reason, those of most warehouses first."""
    groups: dict[tuple[Strategy | None, str], list[str]] = {}
    for each in warehouses:
        groups.setdefault((each.strategy, each.reason), []).append(each.warehouse)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [_line(strategy, reason, names) for (strategy, reason), names in ordered]


def _line(strategy: Strategy | None, reason: str, names: Sequence[str]) -> str:
    if strategy is None:
        return f"not known yet in {_named(names)}: the first move finds it out"
    return f"{strategy.value} in {_named(names)}" + (f": {reason}" if reason else "")


def _named(names: Sequence[str]) -> str:
    if len(names) <= NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:NAMED])} and {len(names) - NAMED:,} more"
