"""What a warehouse holds: namespaces, and tables as rows that a name leads to. No rule of any server stands here."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from worker.identifiers import TableIdentifier

Levels = tuple[str, ...]


@dataclass(eq=False, slots=True)
class Row:
    """One table. ``document`` is its metadata, as it was written."""

    table_uuid: str
    identifier: TableIdentifier
    location: str
    metadata_location: str
    document: bytes
    homes: set[Levels]
    """The namespaces whose grants apply: the one in which it was made, wherever it was renamed to."""
    owner: str = ""
    """Who made or registered it."""
    staged: bool = False
    protected: bool = False
    purge: bool = False
    """Whether its files go with it once its soft deletion expires."""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Vended:
    """What a client is told about storage with a table: ``config``, and the options of its own credential."""

    config: Mapping[str, str] = field(default_factory=dict)
    credential: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Warehouse:
    """One warehouse. A test may change what is public here while no request is under way."""

    name: str
    root: str
    """Where its tables lie: a location without a slash at the end."""
    id: str
    ignores_case: bool = False
    soft_delete: bool = False
    """A dropped table stays as a row until it expires."""
    active: bool = True
    fading: bool = False
    """Just deactivated, in Lakekeeper: its caches show the warehouse, for up to a minute, and nothing in it."""
    starts: bool = True
    in_use: bool = True
    vended: Vended = field(default_factory=Vended)
    deleted: list[Row] = field(default_factory=list)
    """Softly deleted rows."""
    purges: list[str] = field(default_factory=list)
    """Locations whose files are to be deleted by a task that has not run yet."""
    purged: list[str] = field(default_factory=list)
    """Locations whose files were deleted."""

    entered: set[str] = field(default_factory=set)
    """First levels of namespaces under which a table was seen: Gravitino enters such a table among its own entities."""

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self._namespaces: dict[Levels, tuple[Levels, dict[str, str]]] = {}
        self._rows: dict[Levels, dict[str, Row]] = {}
        self._uuids: dict[str, set[Row]] = {}
        self._numbers = itertools.count(1)

    # Namespaces.

    def add_namespace(self, namespace: Levels, properties: Mapping[str, str]) -> None:
        """Put a namespace there, and its parents where they are not."""
        for depth in range(1, len(namespace)):
            self._namespaces.setdefault(self._levels(namespace[:depth]), (namespace[:depth], {}))
        self._namespaces[self._levels(namespace)] = (namespace, dict(properties))

    def has_namespace(self, namespace: Levels) -> bool:
        """Whether the namespace is there."""
        return self._levels(namespace) in self._namespaces

    def properties_of(self, namespace: Levels) -> dict[str, str]:
        """The properties of a namespace that is there; they may be changed."""
        return self._namespaces[self._levels(namespace)][1]

    def children_of(self, parent: Levels) -> list[Levels]:
        """The namespaces one level below, in the order in which they came."""
        key = self._levels(parent)
        return [
            stored
            for below, (stored, _) in self._namespaces.items()
            if len(below) == len(key) + 1 and below[:-1] == key
        ]

    def below(self, parent: Levels) -> list[Levels]:
        """The namespaces on every level below."""
        key = self._levels(parent)
        return [stored for below, (stored, _) in self._namespaces.items() if below != key and below[: len(key)] == key]

    def remove_namespace(self, namespace: Levels) -> None:
        """Take a namespace away."""
        del self._namespaces[self._levels(namespace)]

    # Tables.

    def row(self, identifier: TableIdentifier) -> Row | None:
        """The row of a name, staged ones included."""
        return self._rows.get(self._levels(identifier.namespace), {}).get(self._fold(identifier.name))

    def live(self, identifier: TableIdentifier) -> Row | None:
        """The row that a reader of the name finds."""
        row = self.row(identifier)
        return None if row is None or row.staged else row

    def holds(self, row: Row) -> bool:
        """Whether the row is still there, under whatever name."""
        return self.row(row.identifier) is row

    def add(self, row: Row) -> Row:
        """Put a row under its name."""
        row.number = next(self._numbers)
        self._rows.setdefault(self._levels(row.identifier.namespace), {})[self._fold(row.identifier.name)] = row
        self._uuids.setdefault(row.table_uuid, set()).add(row)
        return row

    def remove(self, row: Row) -> None:
        """Take a row away; its files stay."""
        del self._rows[self._levels(row.identifier.namespace)][self._fold(row.identifier.name)]
        self._uuids[row.table_uuid].discard(row)

    def move(self, row: Row, identifier: TableIdentifier) -> None:
        """Give a row another name."""
        self.remove(row)
        row.identifier = identifier
        number = row.number
        self.add(row).number = number

    def rows_in(self, namespace: Levels) -> list[Row]:
        """The live rows of a namespace, in the order in which they came."""
        rows = self._rows.get(self._levels(namespace), {}).values()
        return sorted((row for row in rows if not row.staged), key=lambda row: row.number)

    def rows(self) -> Iterator[Row]:
        """Every row, staged and softly deleted ones included."""
        for rows in self._rows.values():
            yield from rows.values()
        yield from self.deleted

    def knows(self, table_uuid: str, *, but: Row | None = None) -> bool:
        """Whether a table of this uuid is there, softly deleted ones included."""
        return any(row is not but for row in self._uuids.get(table_uuid, ())) or any(
            row.table_uuid == table_uuid for row in self.deleted
        )

    def lies_at(self, location: str, *, but_uuid: str, but: Row | None = None) -> bool:
        """Whether another table lies at a location, above it or below it."""
        here = location.rstrip("/") + "/"
        return any(
            here.startswith(there) or there.startswith(here)
            for row in self.rows()
            if row.table_uuid != but_uuid and row is not but
            for there in (row.location.rstrip("/") + "/",)
        )

    def _fold(self, name: str) -> str:
        return name.casefold() if self.ignores_case else name

    def _levels(self, namespace: Levels) -> Levels:
        return tuple(map(self._fold, namespace))

    def same(self, one: TableIdentifier, other: TableIdentifier) -> bool:
        """Whether two names are one to this warehouse."""
        return (self._levels(one.namespace), self._fold(one.name)) == (
            self._levels(other.namespace),
            self._fold(other.name),
        )

    def same_name(self, one: str, other: str) -> bool:
        """Whether two names of tables are one to this warehouse."""
        return self._fold(one) == self._fold(other)
