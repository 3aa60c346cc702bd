"""The four-way look: what stands under both names, and what follows from it. Pure.

Responsible for: what a look can see, how two pointers to one table relate, the decision table of DESIGN's protocol.
Must not know: how a look is made, how a decision is carried out.

Two pointers are compared by uuid, metadata location and metadata log. Snapshots and sequence numbers never decide
which is ahead: a commit may change the schema alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from worker.lakehouse.port import CatalogError, SoakError, SoakFault, Table
from worker.outcome import Park, ParkCode

if TYPE_CHECKING:
    from worker.moves.ports import Pointer


@dataclass(frozen=True, slots=True)
class There:
    """A GET returned the table's metadata."""

    table: Table


@dataclass(frozen=True, slots=True)
class Gone:
    """Certainly not there: the typed 404, no HEAD that finds it, the namespace in sight, no listing that shows it."""


@dataclass(frozen=True, slots=True)
class Unclear:
    """No statement can be made."""

    error: CatalogError


@dataclass(frozen=True, slots=True)
class NotLooked:
    """The journal knows of no earlier attempt at this name: the request itself will tell."""


Sighting = There | Gone | Unclear
NOT_LOOKED: Final = NotLooked()


class Relation(Enum):
    """How the pointer under the new name stands to the one under the old."""

    SAME = auto()
    BEHIND = auto()
    """An ancestor of the old: a stale registration."""
    AHEAD = auto()
    """A descendant of the old: somebody has committed through the new name."""
    FORKED = auto()
    """Neither or both: nobody can tell, so nothing may be given up."""


class Step(Enum):
    """What the attempt does next."""

    MAKE = auto()
    """Make the namespace, register the new name."""
    GO_ON = auto()
    """Soak the new name, look at the old again, flip."""
    REPLACE = auto()
    """Withdraw the stale registration, then register again."""
    ADOPT = auto()
    """The old name is gone and the new one is proved to be the table: soak, flip."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the ledger, the journal and the log know about the table."""

    table_uuid: str | None
    """The ledger's; None before the first registration was journaled."""
    last_snapshot_id: int | None
    """Of the last succeeded log row."""
    registered: frozenset[str]
    """Metadata locations that open journal entries registered under the new name."""
    given_up: str | None = None
    """The metadata location that a person gave up, knowing what it alone holds."""
    placed: bool = False
    """The column names the new place already, by another hand. Where no uuid is known, that is somebody's word."""


def relation(new: Table, old: Table, registered: frozenset[str]) -> Relation:
    """How ``new`` stands to ``old``, two pointers to one uuid.

    A pointer is an ancestor if the other's metadata log holds its location. Metadata logs may be short, so a location
    that is missing there says nothing: then the journal decides, by the very location that it registered, through
    which nobody has committed since.
    """
    if new.metadata_location == old.metadata_location:
        return Relation.SAME
    behind, ahead = new.metadata_location in old.metadata_log, old.metadata_location in new.metadata_log
    if not behind and not ahead:
        behind = new.metadata_location in registered
        # With several registrations open nobody knows which of them the new name grew from.
        ahead = not behind and registered == {old.metadata_location}
    if behind == ahead:
        return Relation.FORKED
    return Relation.BEHIND if behind else Relation.AHEAD


def reaches(keeper: Table, pointer: Pointer, *, registered: bool) -> bool:
    """Whether the history of ``keeper`` holds what ``pointer`` points to, so that the pointer may go.

    ``registered``: the keeper grew from that very location, by the journal. Its log may have forgotten it since, but
    a keeper whose sequence number is lower has been set back by somebody.
    """
    if keeper.uuid != pointer.table_uuid:
        return False
    if pointer.metadata_location == keeper.metadata_location or pointer.metadata_location in keeper.metadata_log:
        return True
    return registered and keeper.sequence_number >= pointer.sequence_number


def decide(old: Sighting, new: Sighting | NotLooked, evidence: Evidence) -> Step | Park | CatalogError:
    """The decision table. A CatalogError means: no statement can be made, the attempt ends by that error."""
    match old, new:
        case Unclear(error), _:
            return error
        case _, Unclear(error):
            return error
        case There(table), _ if evidence.table_uuid not in {None, table.uuid}:
            return _source_replaced(table, evidence)
        case There(_), Gone() | NotLooked():
            return Step.MAKE
        case There(source), There(target):
            return _both(source, target, evidence)
        case Gone(), There(target):
            return _only_new(target, evidence)
        case _:
            return Park(
                ParkCode.TABLE_MISSING,
                "neither name holds the table: it was dropped, or moved by somebody to a name that is not known here",
                "put the pointer back by hand (`reroot show` has its location), then `reroot retry`",
            )


def _both(source: Table, target: Table, evidence: Evidence) -> Step | Park:
    if target.uuid != source.uuid:
        return name_taken(target, source.uuid)
    match relation(target, source, evidence.registered):
        case Relation.SAME | Relation.AHEAD:
            return Step.GO_ON
        case Relation.BEHIND:
            return Step.REPLACE
        case Relation.FORKED if evidence.given_up == target.metadata_location:
            return Step.REPLACE
        case Relation.FORKED if evidence.given_up == source.metadata_location:
            return Step.GO_ON
        case Relation.FORKED:
            return diverged(target, live=source)


def _only_new(target: Table, evidence: Evidence) -> Step | Park:
    if (
        target.uuid == evidence.table_uuid
        or (evidence.last_snapshot_id is not None and evidence.last_snapshot_id in target.snapshot_ids)
        or (evidence.placed and evidence.table_uuid is None)
    ):
        return Step.ADOPT
    return Park(
        ParkCode.UNVERIFIED,
        f"the old name is gone, and nothing shows that {target.identifier} (uuid {target.uuid}) is the dataset's",
        "compare that table with the dataset by hand; if it is the one, set datasets.iceberg_namespace, then"
        " `reroot retry`",
    )


def _source_replaced(table: Table, evidence: Evidence) -> Park:
    return Park(
        ParkCode.SOURCE_REPLACED,
        f"{table.identifier} is another table now (uuid {table.uuid}, it was {evidence.table_uuid})",
        "find out who replaced it; `reroot show` has the location of the table that was there",
    )


def name_taken(other: Table, table_uuid: str) -> Park:
    """Another table stands where ours is to go. It is never touched."""
    return Park(
        ParkCode.NAME_TAKEN,
        f"{other.identifier} is another table (uuid {other.uuid}, not {table_uuid})",
        "rename or drop that table, or give the dataset another schema, then `reroot retry`",
    )


def refuse_difference(standing: Table, source: Table) -> None:
    """One metadata file must read the same under both names. Raises SoakError.

    A name that somebody has already committed through is ahead, and is held against itself by the soak alone.
    """
    if standing.metadata_location != source.metadata_location:
        return
    for what in ("uuid", "location", "snapshot_id", "format_version", "row_count"):
        one, other = getattr(standing, what), getattr(source, what)
        if one != other:
            why = f"{standing.identifier} says {what} {one}, {source.identifier} says {other}"
            raise SoakError(SoakFault.DAMAGED, why)


def diverged(beside: Table, live: Table) -> Park:
    """Both names were written to, and neither holds all: name what each side has alone."""
    return Park(
        ParkCode.DIVERGED,
        f"{beside.identifier} and {live.identifier} have diverged:"
        f" {_alone(beside, live)} only in the first, {_alone(live, beside)} only in the second",
        "`reroot resolve --keep old|new` shows what each side would lose; both pointers stay until then",
        beside=".".join(beside.identifier.namespace),
    )


def _alone(one: Table, other: Table) -> str:
    snapshots = sorted(one.snapshot_ids - other.snapshot_ids)
    shown = ", ".join(map(str, snapshots[:3])) + (" …" if len(snapshots) > 3 else "")  # noqa: PLR2004 - a line's worth
    return f"snapshots {shown}" if snapshots else f"the metadata {one.metadata_location}"
