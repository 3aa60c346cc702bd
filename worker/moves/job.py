"""One claimed attempt: what it holds, how it looks, what it does before it changes anything.

Responsible for: the names that a move is about, certain looks, the guard before each change, namespaces.
Must not know: in which order a move uses these (``place``, ``retire``, ``withdraw``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from worker.identifiers import LEGACY_NAMESPACE, QUARANTINE_NAMESPACE, TableIdentifier
from worker.lakehouse.port import Catalog, CatalogError, ErrorCode, ErrorKind
from worker.moves.look import Gone, Sighting, There, Unclear
from worker.moves.machine import Direction, State
from worker.moves.rights import Rights
from worker.outcome import ParkCode, backoff

if TYPE_CHECKING:
    from worker.lakehouse.port import Table
    from worker.moves.policy import Policy
    from worker.moves.ports import Action, Claimed, ControlPlane, Dataset, Entry, Lock, Move, Strategy

_ABSENT = frozenset({ErrorCode.TABLE_MISSING, ErrorCode.NAMESPACE_MISSING})


class OutOfTimeError(Exception):
    """The attempt's deadline has passed; nothing that changes something is begun any more."""


@dataclass(slots=True)
class Memory:
    """What this process has found out, by warehouse, so that it is asked or written only once."""

    namespaces: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    """Made or there."""
    seen: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    """Namespaces that this process was shown by a GET."""
    rights: Rights = field(default_factory=Rights)
    strategies: set[str] = field(default_factory=set)
    """Warehouses whose strategy was noted."""


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that one attempt works with."""

    claimed: Claimed
    lock: Lock
    controlplane: ControlPlane
    catalog: Catalog
    policy: Policy
    memory: Memory
    deadline: float
    """On the policy's clock."""
    warnings: list[str] = field(default_factory=list)
    """Warnings of the last soak."""

    @property
    def move(self) -> Move:
        """The ledger's row."""
        return self.claimed.move

    @property
    def dataset(self) -> Dataset:
        """The dataset, read under the lock."""
        return self.claimed.dataset

    def named(self, namespace: str) -> TableIdentifier:
        """The dataset's table in ``namespace``."""
        return TableIdentifier.within(namespace, self.move.table_name)

    @property
    def strategy_given(self) -> bool:
        """An operator or the settings say how tables are moved here; what was found out gives way to them."""
        return self.claimed.strategy_set or self.policy.strategy is not None

    @property
    def strategy(self) -> Strategy | None:
        """How tables are moved in this warehouse; None while nobody knows."""
        if self.claimed.strategy_set:
            return self.claimed.strategy
        return self.policy.strategy or self.claimed.strategy

    def note_once(self, strategy: Strategy, reason: str) -> None:
        """Remember what this warehouse was seen to allow."""
        warehouse = self.dataset.warehouse
        if self.strategy is None and warehouse not in self.memory.strategies:
            self.controlplane.note_strategy(warehouse, strategy, reason)
            self.memory.strategies.add(warehouse)

    @property
    def left(self) -> TableIdentifier:
        """The name that this direction leaves."""
        out = self.move.direction is Direction.OUT
        return self.named(self.move.source_namespace if out else self.move.target_namespace)

    @property
    def gone_to(self) -> TableIdentifier:
        """The name that a flipped move of this direction has gone to."""
        out = self.move.direction is Direction.OUT
        return self.named(self.move.target_namespace if out else self.move.source_namespace)

    def live(self) -> TableIdentifier:
        """The name that the resolver gives at this instant. A dataset that is gone counts as never moved."""
        return self.named(self.controlplane.live_namespace(self.claimed) or LEGACY_NAMESPACE)

    def open(self, *actions: Action) -> list[Entry]:
        """The open journal entries of these kinds, oldest first."""
        return [entry for entry in self.claimed.entries if entry.action in actions]

    def guard(self) -> None:
        """Ask before each change: is the lock still ours, is there time? Raises LockLostError, OutOfTimeError."""
        self.lock.alive()
        if self.policy.clock() > self.deadline:
            raise OutOfTimeError

    def pause(self) -> float:
        """Seconds until the next attempt, by the number of those that were made."""
        return backoff(self.move.attempts, self.policy.jitter())

    def soak(self, table: Table) -> None:
        """Prove that a reader of the name finds a whole table. Raises SoakError, CatalogError."""
        accepted = ParkCode.SOAK_UNSUPPORTED in self.move.accepted
        self.warnings[:] = self.catalog.soak(table, accept_unsupported=accepted)

    def look(self, identifier: TableIdentifier) -> Sighting:
        """What stands under the name. An absent table counts as gone only when certain. Raises LockLostError."""
        try:
            return There(self.catalog.load(identifier))
        except CatalogError as error:
            if error.code not in _ABSENT:
                return Unclear(error)
        return self._certainly_gone(identifier)

    def _certainly_gone(self, identifier: TableIdentifier) -> Sighting:
        self.lock.alive()  # further requests follow, and after a rename the server does not wait long
        try:
            # Names are hidden below one level only, and each request may be slow.
            if len(identifier.namespace) > 1 and self.catalog.table_exists(identifier):
                return _hidden(identifier, "a HEAD finds it")
            if not self.catalog.namespace_exists(identifier.namespace):
                # A namespace that Reroot makes is empty before. A warehouse that was deactivated hides all namespaces.
                hidden = self._holds_ours(identifier.namespace) or self.ask_beside() is not None
                return _doubt(identifier, "is not in sight") if hidden else Gone()
            if identifier in self.catalog.list_tables(identifier.namespace):
                return _hidden(identifier, "the listing shows it")
        except CatalogError as error:
            return Unclear(error)
        return Gone()

    def ask_beside(self) -> CatalogError | None:
        """Ask for a namespace that is known to exist; None where it is shown, else the catalog's error.

        That is the legacy namespace, or the live name's. Where neither is shown, the warehouse hides its contents from
        this client: Lakekeeper does so for up to a minute after a warehouse was deactivated.
        """
        said: CatalogError | None = None
        for namespace in dict.fromkeys((LEGACY_NAMESPACE, self.dataset.live_namespace)):
            try:
                if self.catalog.namespace_exists(tuple(namespace.split("."))):
                    return None
            except CatalogError as error:
                if error.code is not ErrorCode.FORBIDDEN:
                    return error
                said = error
            text = f"the namespace {namespace} is not in sight: the warehouse is inactive, or hidden from this client"
            said = said or CatalogError(ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT, text)
        return said

    def _holds_ours(self, namespace: tuple[str, ...]) -> bool:
        """Whether a table of this dataset may be there. Then a namespace that is not shown may still exist."""
        if self.move.state is State.FLIPPED and namespace == self.gone_to.namespace:
            return True
        live = tuple(self.dataset.live_namespace.split("."))
        return namespace in {(LEGACY_NAMESPACE,), (QUARANTINE_NAMESPACE,), live}

    def ensure_namespace(self, namespace: tuple[str, ...]) -> None:
        """Make the namespace, parents first; existing ones are fine. Raises CatalogError."""
        for depth in range(1, len(namespace) + 1):
            level = namespace[:depth]
            key = (self.dataset.warehouse, level)
            if key in self.memory.namespaces:
                continue
            try:
                self.catalog.create_namespace(level)
            except CatalogError as error:
                if error.code is ErrorCode.NAMESPACE_MISSING:
                    self.forget_namespace(level)  # a parent that was made or seen is gone
                # A server may have made it and then failed, or may forbid making what is already there: ask.
                if error.code is not ErrorCode.ALREADY_EXISTS and not self._sees(level, error):
                    raise
            self.memory.namespaces.add(key)

    def sees_namespace(self, namespace: tuple[str, ...]) -> bool:
        """Whether a GET shows the namespace; a yes is remembered. Raises CatalogError."""
        key = (self.dataset.warehouse, namespace)
        if key not in self.memory.seen and self.catalog.namespace_exists(namespace):
            self.memory.seen.add(key)
        return key in self.memory.seen

    def _sees(self, namespace: tuple[str, ...], error: CatalogError) -> bool:
        if error.code in {ErrorCode.UNAVAILABLE, ErrorCode.THROTTLED, ErrorCode.UNAUTHORIZED}:
            return False
        return self.catalog.namespace_exists(namespace)

    def forget_namespace(self, namespace: tuple[str, ...]) -> None:
        """Somebody dropped it: make it anew next time."""
        for depth in range(1, len(namespace) + 1):
            self.memory.namespaces.discard((self.dataset.warehouse, namespace[:depth]))
        self.memory.seen.discard((self.dataset.warehouse, namespace))


def _hidden(identifier: TableIdentifier, how: str) -> Unclear:
    text = f"the catalog answers 404 for {identifier} while {how}"
    return Unclear(CatalogError(ErrorCode.HIDDEN, ErrorKind.PERMANENT, text))


def _doubt(identifier: TableIdentifier, why: str) -> Unclear:
    text = f"{identifier} {why}: unknown, not gone"
    return Unclear(CatalogError(ErrorCode.UNREADABLE, ErrorKind.UNKNOWN, text))
