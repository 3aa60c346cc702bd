"""What must always hold, looked at before each request and after each effect, on the in-memory twins.

I1 reachable, I2 nothing lost, I3 column and log together, I4 no file deleted, I7 own warehouse alone, I8 the live
pointer is never withdrawn and every pointer is journaled before its request; and only legal transitions are written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from worker.identifiers import QUARANTINE_NAMESPACE, TableIdentifier, quarantine_identifier
from worker.moves.machine import TRANSITIONS
from worker.moves.ports import Action

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.faults import PortCall
    from tests.support.twin_stage import Process, TwinStage
    from worker.moves.ports import Entry, Flip

LEGAL: Final = {(t.letter, t.source, t.target) for t in TRANSITIONS}


@dataclass(frozen=True)
class Commit:
    """A commit that its writer was told is done."""

    location: str
    through: TableIdentifier | None


@dataclass
class Account:
    """Every commit that was acknowledged, and from which it grew. Catalogs may forget their logs, this does not."""

    first: str
    commits: list[Commit] = field(default_factory=list)
    exempt: set[str] = field(default_factory=set)
    """Given up by a person, or lost in the one window: between look and DELETE where a server cannot rename."""

    def __post_init__(self) -> None:
        self._histories = {self.first: frozenset({self.first})}
        self.commits.append(Commit(self.first, None))

    def acknowledge(self, location: str, was: str, through: TableIdentifier) -> None:
        """A writer was told that its commit is done."""
        self._histories[location] = self.history(was) | {location}
        self.commits.append(Commit(location, through))

    def knows(self, location: str | None) -> bool:
        """Whether this is the dataset's table."""
        return location in self._histories

    def history(self, location: str | None) -> frozenset[str]:
        """A metadata location with everything that it grew from; nothing for another table."""
        return self._histories.get(location or "", frozenset())

    def missing_from(self, locations: Iterable[str]) -> list[str]:
        """Acknowledged commits that are in none of these tables' histories."""
        held = self.exempt.union(*(self.history(location) for location in locations))
        return [commit.location for commit in self.commits if commit.location not in held]

    def give_up(self, lost: str, kept: str | None) -> None:
        """What only ``lost`` holds may be lost."""
        self.exempt |= self.history(lost) - self.history(kept)


def world_violations(stage: TwinStage) -> list[str]:
    """What is wrong with the world as it stands."""
    names, account, live = stage.catalog.names, stage.account, stage.live
    wrong = []
    if not account.knows(names.get(live)) and not in_window(stage):
        wrong.append(f"I1: {live} holds no table")
    if account.missing_from(names.values()):
        wrong.append("I2: an acknowledged commit is under no name")
    logged = {row.identifier for row in stage.plane.log[stage.dataset]}
    if not logged <= {str(live)}:
        wrong.append(f"I3: the log says {logged}, the column {live}")
    if not all(
        commit.location in stage.catalog.files for commit in account.commits if commit.location not in stage.cleaned
    ):
        wrong.append("I4: a metadata file is gone")
    if len(stage.lakehouse.catalogs) != 1:
        wrong.append(f"I7: warehouses {set(stage.lakehouse.catalogs)} were touched")
    if not all((event.letter, event.source, event.target) in LEGAL for event in stage.plane.events):
        wrong.append("a transition was written that the picture does not have")
    return wrong


def in_window(stage: TwinStage) -> bool:
    """A rename's window: the table stands under the name that an open rename is to."""
    return any(
        stage.account.knows(stage.catalog.names.get(entry.pointer.identifier))
        for entry in stage.open_entries(Action.RENAME)
    )


def request_violations(stage: TwinStage, process: Process, call: PortCall) -> list[str]:
    """What is wrong with a request that is about to take effect."""
    if call.port != "catalog":
        return []
    names = [each for each in call.arguments if isinstance(each, TableIdentifier)]
    others = [each for each in names if each.name != stage.name and each.namespace != (QUARANTINE_NAMESPACE,)]
    if others and call.method != "load":  # a load tells a warehouse that is away from a table that is damaged
        return [f"{call} is about the table of another dataset: {others}"]
    match call.method, call.arguments:
        case "register", (identifier, location):
            return _register(stage, identifier, location)
        case "rename", (source, target):
            return _rename(stage, process, source, target)
        case "drop", (identifier,):
            return _drop(stage, process, identifier)
    return []


def flip_violations(stage: TwinStage, process: Process, flip: Flip) -> list[str]:
    """What is wrong with a flip that was just committed: it leaves behind what stood there at the very last look."""
    before = [commit for commit in stage.account.commits[: process.asked_at] if commit.through == flip.left]
    held = stage.account.history(stage.catalog.names.get(flip.live)) | stage.account.exempt
    left = [commit.location for commit in before if commit.location not in held]
    return [f"I2: the flip leaves {left} behind, which were there when it last looked"] if left else []


def _register(stage: TwinStage, identifier: TableIdentifier, location: str) -> list[str]:
    if identifier in stage.catalog.names:
        return []  # nothing can happen
    for entry in stage.open_entries(Action.REGISTER):
        if (entry.pointer.identifier, entry.pointer.metadata_location) == (identifier, location):
            return []
    return [f"I8: {identifier} is registered on {location}, and the journal does not know"]


def _rename(stage: TwinStage, process: Process, source: TableIdentifier, target: TableIdentifier) -> list[str]:
    if source not in stage.catalog.names or target in stage.catalog.names or not stage.catalog.offers_rename:
        return []  # nothing can happen
    renames = {entry.pointer.identifier for entry in stage.open_entries(Action.RENAME)}
    if source == stage.live:
        held = stage.plane.rows_held.keys() >= {(t, stage.dataset) for t in ("datasets", "iceberg_sync_log")}
        lost = process.lock is not None and not process.lock.held  # since it last asked, or that is told elsewhere
        wrong = {
            f"I8: the live {source} is renamed to {target}, and the journal does not know": target in renames,
            f"the live {source} is renamed while nobody holds the flip's rows": held or lost or stage.arriving,
        }
        return [what for what, right in wrong.items() if not right]
    fences = [(entry.pointer.identifier, _shelter(entry)) for entry in stage.open_entries(Action.WITHDRAW)]
    fenced = {*fences, *((shelter, name) for name, shelter in fences)}
    if (source, target) in fences and _in_grace(stage, source):
        return [f"I1: {source} is withdrawn while readers may hold it"]
    back = source in renames and target == stage.live
    return [] if back or (source, target) in fenced else [f"I8: {source} to {target}, and the journal does not know"]


def _drop(stage: TwinStage, process: Process, identifier: TableIdentifier) -> list[str]:
    if identifier not in stage.catalog.names:
        return []
    if not stage.account.knows(stage.catalog.names[identifier]):
        return [f"another hand's table {identifier} is dropped"]
    withdrawals = stage.open_entries(Action.WITHDRAW)
    if not any(identifier in {entry.pointer.identifier, _shelter(entry)} for entry in withdrawals):
        return [f"I8: {identifier} is dropped, and the journal does not know"]
    if identifier == stage.live:
        return [f"I8: the live {identifier} is dropped"]
    if _in_grace(stage, identifier):
        return [f"I1: {identifier} is dropped while readers may hold it"]
    if not stage.catalog.offers_rename and process.last_look is not None and process.last_look[0] == identifier:
        # The one window: what came after the look that this very DELETE rests on.
        stage.account.give_up(stage.catalog.names[identifier], process.last_look[1])
    return []


def _in_grace(stage: TwinStage, name: TableIdentifier) -> bool:
    """The resolver named it so lately that a reader may not have opened it yet."""
    return stage.plane.now - stage.last_live.get(name, float("-inf")) < stage.policy.grace_seconds


def _shelter(entry: Entry) -> TableIdentifier:
    return quarantine_identifier(entry.pointer.identifier.name, entry.id)
