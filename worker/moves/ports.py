"""What a move needs from the control plane.

Responsible for: the values of the ledger and the journal as the protocol reads them, and the two Protocols that
``worker.controlplane`` implements.
Must not know: SQL, psycopg.

Two connections carry an attempt. The *lock's* is one transaction from the lock to the end: it touches no table before
the flip, its reservation or the end, and every end is written on it. The *second* commits each statement at once:
claim, journal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from worker.identifiers import TableIdentifier, resolve

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from worker.moves.machine import Direction, State
    from worker.outcome import Outcome, ParkCode


CREDENTIALS_REFUSED: Final = "the catalog does not accept our credentials"
"""How the reason begins of a warehouse that is away because of them: time alone does not mend that."""


class Action(StrEnum):
    """What a journal entry is about."""

    REGISTER = "register"
    RENAME = "rename"
    WITHDRAW = "withdraw"


class Strategy(StrEnum):
    """How a table gets its second name."""

    REGISTER = "register"
    """Two names hold one table until the grace is over: readers never see a gap."""
    RENAME = "rename"
    """One name at a time, for catalogs that hold a table once."""


class Closed(StrEnum):
    """How a journal entry ended."""

    KEPT = "kept"
    """The pointer stands and the resolver names it."""
    WITHDRAWN = "withdrawn"
    """The pointer is gone."""
    RETURNED = "returned"
    """It was in quarantine and stands under its name again."""
    UNREADABLE = "unreadable"
    """It was renamed to that name, could not be read there, and was renamed back."""
    VOID = "void"
    """The request never took effect."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A name and the metadata file that it points to."""

    identifier: TableIdentifier
    table_uuid: str
    metadata_location: str
    sequence_number: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One open line of the journal: a pointer that we intended to make or to take away."""

    id: int
    action: Action
    pointer: Pointer
    opened_ago: float = field(default=0.0, compare=False)
    """In seconds, when it was read."""


@dataclass(frozen=True, slots=True)
class Move:
    """The ledger's row."""

    dataset_id: str
    workspace_id: str
    state: State
    direction: Direction
    claim: int
    attempts: int
    busy_count: int
    table_name: str
    source_namespace: str
    """The legacy namespace, as the planned log identifier had it."""
    target_namespace: str
    table_uuid: str | None
    old_location: str | None
    """Where the name that is left pointed to at the flip, or when a person gave that side up."""
    old_sequence_number: int | None
    given_up: str | None
    """The metadata location that a person gave up by ``resolve``: the only one that may be lost."""
    target_named_ago: float | None
    """Seconds since the resolver last named the place that this direction goes to; None: never."""
    due: bool
    """By the database's clock."""
    running: bool
    """An attempt has claimed it and has not written its end."""
    urgent: str | None = None
    """The dataset that a process does first, whatever its message says: an open rename, a withdrawal that died."""
    accepted: frozenset[str] = frozenset()
    """Park codes that an operator accepted by ``retry --accept``: what they say does not keep the move back."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The dataset as the control plane has it now, read afresh under the lock."""

    exists: bool
    iceberg_namespace: str | None
    place: str | None
    """``{catalog.slug}.{schema.slug}`` of its schema; None where it has none any more."""
    no_place: ParkCode | None
    """Why there is no place."""
    warehouse: str
    last_snapshot_id: int | None
    """The snapshot of the last succeeded log row."""
    last_identifier: str | None
    """The identifier in that row."""

    @property
    def live_namespace(self) -> str:
        """What the resolver says."""
        return resolve(self.iceberg_namespace)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claimed job: everything that the attempt knows before its first request."""

    move: Move
    dataset: Dataset
    entries: tuple[Entry, ...]
    """Open journal entries, oldest first."""
    away_for: float | None
    """Seconds for which the warehouse is known to be away; None when it may be asked."""
    probing: bool = False
    """The warehouse was away, and this attempt is the one that asks whether it is back."""
    strategy: Strategy | None = None
    """How this warehouse moves tables; None: not known yet."""
    strategy_set: bool = False
    """An operator said so; else it was found out."""


@dataclass(frozen=True, slots=True)
class Flip:
    """What the flip writes, in one transaction."""

    before: str | None
    """What ``datasets.iceberg_namespace`` must hold."""
    after: str | None
    """What it holds then; the same as ``before`` where another hand has set it already."""
    left: TableIdentifier
    """The name that is left; its log prefix is rewritten."""
    live: TableIdentifier
    """The name that the resolver gives from then on."""
    state: State
    """``flipped`` where a second pointer is left, ``done`` where there is none."""
    table_uuid: str
    old_location: str
    old_sequence_number: int
    snapshot_id: int | None
    row_count: int | None
    grace_seconds: float
    """From now on, by the database's clock, the other pointer stays at least so long."""
    entry_ids: tuple[int, ...]
    """Journal entries that are closed as kept."""
    warnings: tuple[str, ...] = ()
    """The soak's warnings, for the event."""


class Written(StrEnum):
    """How a transaction on the lock's connection ended."""

    COMMITTED = "committed"
    ROWS_BUSY = "rows_busy"
    """Somebody holds one of its rows. Nothing was done; the lock is still held, as after the two below."""
    COLUMN_SET = "column_set"
    """The column is no longer what it was."""
    SUPERSEDED = "superseded"
    """The claim is no longer ours."""


class HeldError(Exception):
    """Another program holds a table or a row that was asked for; nothing was done."""


class LockLostError(Exception):
    """The lock's connection is gone: nothing more may be removed, nothing can be written. The sweeper finds it."""


class Lock(Protocol):
    """A held lock: the connection it lives on, and what may be written there."""

    def alive(self) -> None:
        """Ask the connection. Raises LockLostError."""
        ...

    def reserve(self, claimed: Claimed, flip: Flip, *, idle_seconds: float) -> Written | None:
        """Write all that ``flip`` writes ahead of a rename, without the commit; None: ``commit`` alone is left to do.

        From here on the server ends the transaction when it idles for ``idle_seconds``, so that after the loss of a
        node the window closes soon. Whatever else is written on this connection takes the reservation back first. The
        second connection must not touch the flip's rows meanwhile: it would wait for this one. Raises LockLostError.
        """
        ...

    def commit(self) -> None:
        """Commit what ``reserve`` wrote, and nothing else: the lock ends with it. Raises LockLostError."""
        ...

    def give_back(self) -> None:
        """Take back what ``reserve`` wrote; the lock is still held. Raises LockLostError."""
        ...

    def flip(self, claimed: Claimed, flip: Flip) -> Written:
        """Column, log and ledger, in one transaction, then commit: the lock ends with it. Raises LockLostError."""
        ...

    def finish(self, claimed: Claimed, live: TableIdentifier, left: TableIdentifier) -> Written:
        """Set ``done``, rewrite the log rows that late writers added under ``left``, commit. Raises LockLostError."""
        ...

    def end(self, claimed: Claimed, outcome: Outcome) -> bool:
        """Write how the attempt ended, guarded by state and claim; commit. False where it changed nothing.

        Raises LockLostError.
        """
        ...


class ControlPlane(Protocol):
    """The control plane as one attempt sees it. Every method may raise ControlPlaneAwayError or HeldError."""

    def peek(self, dataset_id: str) -> Move | None:
        """The ledger's row, before the lock; None where it is unknown."""
        ...

    def take(self, dataset_id: str) -> bool:
        """Take an urgent dataset, so that of many processes that see it one does it; False where another took it."""
        ...

    def lock(self, dataset_id: str, *, queue_for: float | None) -> AbstractContextManager[Lock | None]:
        """Take the control plane's own lock on the dataset, or None where somebody else holds it.

        ``queue_for``: seconds to queue for it; None only tries. Leaving the context rolls back what is not committed.
        """
        ...

    def note_busy(self, move: Move, after: float) -> None:
        """Note that the lock was held: only where the claim is still the one peeked and no attempt of ours holds it."""
        ...

    def claim(self, move: Move) -> Claimed | None:
        """Claim the peeked row (``claim + 1``, ``attempts + 1``) and read the dataset; None where it has moved on."""
        ...

    def journal(self, claimed: Claimed, action: Action, pointer: Pointer) -> Entry:
        """Write down an intention and commit, before the request.

        The ledger keeps the uuid of the first pointer that is journaled: the dataset's table from then on.
        Raises LockLostError where the claim was taken over: the attempt stood still, and another one went on.
        """
        ...

    def close(self, entry: Entry, how: Closed) -> None:
        """Close a journal entry, after the request."""
        ...

    def open_entries(self, claimed: Claimed) -> tuple[Entry, ...]:
        """The journal's open entries at this instant, oldest first: those of this attempt, too."""
        ...

    def was_unreadable(self, claimed: Claimed, identifier: TableIdentifier) -> bool:
        """Whether a rename of the dataset's table to this name was taken back because it could not be read there.

        Not where an operator has said since that the cause is mended.
        """
        ...

    def live_namespace(self, claimed: Claimed) -> str | None:
        """What the resolver says at this instant; None where the dataset is gone."""
        ...

    def note_refusal(self, claimed: Claimed) -> int:
        """Note that this dataset's registration was refused though its target is free; how many datasets saw that."""
        ...

    def note_strategy(self, warehouse: str, strategy: Strategy, reason: str) -> None:
        """Remember how the warehouse moves tables, found out by its behaviour; an operator's word stays."""
        ...

    def warehouse_away(self, warehouse: str, after: float, why: str) -> None:
        """Note that the warehouse as a whole does not answer."""
        ...

    def warehouse_back(self, warehouse: str) -> None:
        """Note that it answers again (only called when it was away)."""
        ...
