"""Names of tables, and the one resolver.

Responsible for: what a table identifier is, where a dataset's table lives, which names are reserved.
Must not know: SQL, catalogs, ``schema_id``. Where a table *should* live is decided once, at birth or at the move,
and persisted; from then on the column ``datasets.iceberg_namespace`` is the only truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEGACY_NAMESPACE: Final = "datasets"
"""Where every table was born before tables had a place: the meaning of a NULL ``iceberg_namespace``."""

QUARANTINE_NAMESPACE: Final = "reroot_withdrawn"
"""Where a pointer is parked between its fence and its removal. Reserved: no catalog may have this slug."""

RESERVED_CATALOG_SLUGS: Final = frozenset({LEGACY_NAMESPACE, QUARANTINE_NAMESPACE})

MAX_NAME: Final = 255
"""Longest table name that the strictest catalogs store (JDBC catalogs and SqlCatalog on Postgres: VARCHAR(255))."""


@dataclass(frozen=True, slots=True, order=True)
class TableIdentifier:
    """A table's full name: the levels of its namespace, and its own name."""

    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        """The dotted form, as the control plane's log writes it."""
        return ".".join((*self.namespace, self.name))

    @classmethod
    def within(cls, namespace: str, name: str) -> TableIdentifier:
        """The table ``name`` in the dotted ``namespace``; slugs hold no dot, so each dot parts two levels."""
        return cls(tuple(namespace.split(".")), name)


def resolve(iceberg_namespace: str | None) -> str:
    """The namespace in which a dataset's table physically lives: for every read and every write there is."""
    return LEGACY_NAMESPACE if iceberg_namespace is None else iceberg_namespace


def name_after(namespace: str, identifier: str) -> str | None:
    """The table name in ``identifier`` if that lies in ``namespace``, else None. The name may hold dots itself."""
    prefix = namespace + "."
    name = identifier.removeprefix(prefix)
    return name if name and identifier.startswith(prefix) else None


def default_table_name(dataset_id: str) -> str:
    """The name of a dataset that has no log row yet: ``ds_`` and the id's hex digits."""
    return "ds_" + dataset_id.replace("-", "").lower()


def quarantine_identifier(name: str, entry_id: int) -> TableIdentifier:
    """Where journal entry ``entry_id`` parks the pointer ``name`` while it is withdrawn: unique by the entry's id."""
    suffix = f"__{entry_id}"
    return TableIdentifier((QUARANTINE_NAMESPACE,), name[: MAX_NAME - len(suffix)] + suffix)
