"""What a plan warns about: datasets that can move, and of which something should be known before they do. Pure.

Responsible for: the warnings, when each is due, what to do about it.
Must not know: SQL, the screen. What keeps a dataset from moving is no warning but a reason (``producer.plan``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from worker.identifiers import LEGACY_NAMESPACE
from worker.moves.ports import Strategy

if TYPE_CHECKING:
    from worker.controlplane.facts import DatasetFacts


class Caution(StrEnum):
    """A warning. The values are a contract: ``--json`` and ``--csv`` carry them."""

    METADATA_CLEANUP = "metadata_cleanup"
    """Commits under the new name may clean up the metadata file of the old one while its grace lasts."""
    CASE_TWIN = "case_twin"
    """Another table of the warehouse has, or gets, the same name but for its case."""
    NAME_IN_PATH = "name_in_path"
    """Some servers refuse its name in a path, however it is written: then nothing is touched, and it is parked."""
    NAMESPACE_SHARED = "namespace_shared"
    """Another workspace's datasets are in, or go to, the same namespace of the same warehouse."""
    NAME_HIDDEN = "name_hidden"
    """Some servers accept its name and do not show the table under it: it is then renamed back and parked."""


REMEDY: Final = {
    Caution.METADATA_CLEANUP: "set a shorter grace, or keep more metadata versions",
    Caution.CASE_TWIN: "rename one of the two, if the catalog ignores case",
    Caution.NAME_HIDDEN: "on Gravitino with authorization, rename the table first",
    Caution.NAME_IN_PATH: "move a canary first: some servers refuse % and \\ in paths",
    Caution.NAMESPACE_SHARED: "give each workspace a warehouse, or choose other slugs",
}
"""One line for each warning: what to do about it."""

COMMITS_IN_GRACE: Final = 50
"""Half of Iceberg's default ``write.metadata.previous-versions-max`` (100): a table that is set to clean up after
commits loses the file that the old name points to after so many, at the latest after twice as many."""

_REFUSED_IN_PATHS: Final = frozenset("%\\")
"""The reference server 1.11.0 answers them with a 400: Jetty 12 takes them for an attack."""

_FILES: Final = ("data_files", "delete_files", "entries", "files", "manifests")
_METADATA_TABLES: Final = frozenset(
    {*_FILES, *(f"all_{name}" for name in _FILES), "history", "metadata_log_entries", "partitions"}
    | {"position_deletes", "refs", "snapshots"}
)
"""Iceberg's names for the tables of a table's metadata. Gravitino with authorization hides them below one level."""
_LONGEST_ENTITY: Final = 128
"""Characters. Gravitino with authorization renames a table to a longer name, and then answers with a 500."""

_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Terms:
    """Under what terms datasets would move: the settings."""

    grace_seconds: float
    strategy: Strategy | None
    """None: found out per warehouse."""


def cautions(facts: DatasetFacts, terms: Terms) -> tuple[Caution, ...]:
    """What to know about a dataset that can move, in the order of the enumeration."""
    found = {
        Caution.METADATA_CLEANUP: _leaves_a_second_pointer(facts, terms)
        and facts.commits_last_day * terms.grace_seconds / _DAY > COMMITS_IN_GRACE,
        Caution.CASE_TWIN: facts.case_twin,
        Caution.NAME_IN_PATH: not _REFUSED_IN_PATHS.isdisjoint(facts.source_identifier or ""),
        Caution.NAMESPACE_SHARED: facts.namespace_shared,
        Caution.NAME_HIDDEN: _may_be_hidden((facts.source_identifier or "").removeprefix(LEGACY_NAMESPACE + ".")),
    }
    return tuple(caution for caution in Caution if found[caution])


def _may_be_hidden(name: str) -> bool:
    return name in _METADATA_TABLES or "." in name or len(name) > _LONGEST_ENTITY


def _leaves_a_second_pointer(facts: DatasetFacts, terms: Terms) -> bool:
    """Where tables are renamed no old pointer is left that could break."""
    strategy = facts.strategy if facts.strategy_set else terms.strategy or facts.strategy
    return strategy is not Strategy.RENAME
