"""Whether the name that a flip leaves may be withdrawn afterwards: asked before the first flip in a warehouse.

Responsible for: the one question that shows it and changes nothing.
Must not know: how a pointer is withdrawn.

A catalog may let a client register a second name for a table that it may neither rename nor drop (Gravitino: whoever
does not own the table). The question is a rename of the old name to the new one, which stands already: a client that
has the right gets the answer that the name is taken. It is journaled like every rename, so that an answer that was
lost, or a server that does rename to a taken name, is settled like an open rename.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind
from worker.moves.ports import Action, Closed, Pointer
from worker.outcome import Park, ParkCode, Retry

if TYPE_CHECKING:
    from worker.lakehouse.port import Table
    from worker.moves.goal import Goal
    from worker.moves.job import Job
    from worker.outcome import Outcome

_ALLOWED: Final = frozenset({ErrorCode.ALREADY_EXISTS, ErrorCode.TABLE_MISSING, ErrorCode.NOT_OFFERED})
"""Answers that a client with the right gets. Where the server offers no rename, no harmless question exists."""
_REMEDY: Final = (
    "make this worker's user the owner of the table, its schema or its catalog (Gravitino needs that for a rename or"
    " a drop), then `reroot retry`"
)


@dataclass(slots=True)
class Rights:
    """What this process has found out about the right to withdraw, by warehouse."""

    granted: set[str] = field(default_factory=set)
    varying: set[str] = field(default_factory=set)
    """Warehouses where a withdrawal was forbidden: there the right differs by table, and is asked for each."""

    def forbidden(self, warehouse: str) -> None:
        """Note that a table of the warehouse may not be withdrawn."""
        self.varying.add(warehouse)


def may_withdraw(job: Job, goal: Goal, table: Table, standing: Table) -> Outcome | None:
    """Ask, once per process and warehouse; how the attempt ends where it is forbidden, None where it goes on.

    Both names stand. Nothing is asked where somebody may have committed through the new one: a server that overwrites
    a taken name would lose that. Raises CatalogError where no answer comes, LockLostError: then the entry stays open.
    """
    ago = job.move.target_named_ago
    named = goal.adopted or (ago is not None and ago < job.policy.grace_seconds)
    if named or standing.metadata_location != table.metadata_location:
        return None
    rights, warehouse = job.memory.rights, job.dataset.warehouse
    lost = any(entry.pointer.identifier == goal.target for entry in job.open(Action.RENAME))
    if lost or warehouse in rights.granted - rights.varying:
        return None  # the answer was lost once, and may be lost each time
    pointer = Pointer(goal.target, table.uuid, table.metadata_location, table.sequence_number)
    entry = job.controlplane.journal(job.claimed, Action.RENAME, pointer)
    job.guard()
    try:
        job.catalog.rename(goal.source, goal.target)
    except CatalogError as error:
        if error.kind is not ErrorKind.UNKNOWN:
            job.controlplane.close(entry, Closed.VOID)
        if error.code is ErrorCode.FORBIDDEN:
            rights.forbidden(warehouse)
            why = f"this worker may not withdraw {goal.source} after a flip, so the dataset was not flipped: {error}"
            return Park(ParkCode.FORBIDDEN, why, _REMEDY)
        if error.code not in _ALLOWED:
            raise
        rights.granted.add(warehouse)
        return None
    return Retry(0, f"{goal.source} was renamed to {goal.target}, which stood there already", urgent=True)
