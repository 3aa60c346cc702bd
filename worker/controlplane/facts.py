"""What the control plane knows about one dataset when a plan is made.

Responsible for: the value that ``planning`` streams and that ``producer.plan`` judges.
Must not know: SQL, psycopg. Whether a dataset may move is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from worker.moves.machine import Direction, State
    from worker.moves.ports import Strategy


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """One dataset, its place, its succeeded log rows and its ledger row, read at one instant."""

    dataset_id: str
    exists: bool
    """False: the log names a dataset that ``datasets`` does not hold (any more)."""
    workspace_id: str | None
    iceberg_namespace: str | None
    schema_id: str | None
    schema_exists: bool
    schema_slug: str | None
    catalog_exists: bool
    catalog_slug: str | None
    catalog_workspace_id: str | None
    succeeded_rows: int
    legacy_rows: int
    """Succeeded log rows whose identifier lies in the legacy namespace."""
    legacy_identifiers: int
    """How many different identifiers those rows name."""
    source_identifier: str | None
    """One of them (the only one, where there is one)."""
    source_shared: bool
    """Another dataset of the same warehouse that has no place yet names the same table."""
    target_shared: bool
    """Another dataset of the same warehouse stands, or would stand, under the same target name."""
    state: State | None
    """The ledger's row; None where the dataset was never planned."""
    direction: Direction | None
    claim: int | None
    park_code: str | None
    paired: bool
    """Two names hold its table, or may: ``reroot.pairs``."""
    commits_last_day: int = 0
    """Succeeded log rows of the last 24 hours, by the database's clock."""
    case_twin: bool = False
    """Another table of the same warehouse has the same name, or would get it, but for its case."""
    strategy: Strategy | None = None
    """How the warehouse moves tables; None: not known yet."""
    strategy_set: bool = False
    """An operator said so; else it was found out."""
    namespace_shared: bool = False
    """Another workspace's datasets stand in, or go to, the same namespace of the same warehouse."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which datasets are looked at. Everything None: all of them."""

    dataset_ids: tuple[str, ...] | None = None
    workspace_id: str | None = None
    catalog_slug: str | None = None


EVERYTHING: Final = Scope()
"""Every dataset."""
