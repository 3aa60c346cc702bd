"""What moves where, and what does not and why: one pure function over the facts of a dataset.

Responsible for: the reasons, their order, and the target of a move.
Must not know: SQL, the broker, the screen. The target is derived here once; from the enqueuing on, the ledger and
later ``datasets.iceberg_namespace`` are the truth.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from producer.caution import Caution, Terms, cautions
from worker.identifiers import LEGACY_NAMESPACE, MAX_NAME, TableIdentifier
from worker.moves.machine import Direction, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from worker.controlplane.facts import DatasetFacts


class Reason(StrEnum):
    """Why a dataset is not planned. The values are a contract: ``--json`` and ``--csv`` carry them."""

    QUEUED = "queued"
    FLIPPED = "flipped"
    DONE = "done"
    PARKED = "parked"
    REVERTED = "reverted"
    NO_DATASET = "no_dataset"
    ALREADY_PLACED = "already_placed"
    NOT_SUCCEEDED = "not_succeeded"
    NOT_LEGACY = "not_legacy"
    NO_SCHEMA = "no_schema"
    SCHEMA_MISSING = "schema_missing"
    CATALOG_MISSING = "catalog_missing"
    SLUG_MISSING = "slug_missing"
    WORKSPACE_MISMATCH = "workspace_mismatch"
    AMBIGUOUS_SOURCE = "ambiguous_source"
    SHARED_SOURCE = "shared_source"
    NAME_INVALID = "name_invalid"
    TARGET_CONFLICT = "target_conflict"
    BEYOND_LIMIT = "beyond_limit"


ADVICE: Final = {
    Reason.QUEUED: "planned already, a worker takes it: reroot status",
    Reason.FLIPPED: "moved; the old pointer goes after the grace period",
    Reason.DONE: "moved",
    Reason.PARKED: "needs a person: reroot show DATASET says what",
    Reason.REVERTED: "was taken back; --again plans it anew",
    Reason.NO_DATASET: "log rows of a dataset that is gone",
    Reason.ALREADY_PLACED: "has its place: nothing to do",
    Reason.NOT_SUCCEEDED: "no succeeded log row, so no table is known",
    Reason.NOT_LEGACY: "its table is not in the legacy namespace",
    Reason.NO_SCHEMA: "give the dataset a schema, then plan again",
    Reason.SCHEMA_MISSING: "its schema was deleted: give it another",
    Reason.CATALOG_MISSING: "its schema's catalog was deleted: give it another",
    Reason.SLUG_MISSING: "catalog or schema without slug: reroot db upgrade",
    Reason.WORKSPACE_MISMATCH: "its schema is of another workspace: correct it",
    Reason.AMBIGUOUS_SOURCE: "its log names two legacy tables: correct the log",
    Reason.SHARED_SOURCE: "two datasets name one table: correct the log",
    Reason.NAME_INVALID: "a name that catalogs cannot hold: rename the table",
    Reason.TARGET_CONFLICT: "two datasets want one name: change one's schema",
    Reason.BEYOND_LIMIT: "movable, and more than --limit takes: move again",
}
"""One line for each reason: what to do about it."""

IN_PROGRESS: Final = frozenset({Reason.QUEUED, Reason.FLIPPED})
"""Reasons that mean: this move was ordered earlier and is under way."""

_OF_STATE: Final = {
    State.QUEUED: Reason.QUEUED,
    State.FLIPPED: Reason.FLIPPED,
    State.DONE: Reason.DONE,
    State.PARKED: Reason.PARKED,
}

_REFUSED_IN_NAMES: Final = frozenset("/+")
"""One catalog accepts these in a rename and can never find the table by its path again."""

_FOLDERS: Final = frozenset({".", ".."})
"""Proxies resolve these, and a request about the table becomes one about its namespace."""


Verdict = tuple[Reason, str] | None


@dataclass(frozen=True, slots=True)
class Planned:
    """A dataset that can move, from where to where."""

    dataset_id: str
    workspace_id: str
    source: TableIdentifier
    target: TableIdentifier
    catalog_slug: str
    schema_slug: str
    log_rows: int
    """Succeeded log rows whose identifier the flip will rewrite."""
    claim: int | None
    """The claim of the ledger's row that is planned again; None for a dataset that was never planned."""
    cautions: tuple[Caution, ...] = ()
    """What should be known before it moves."""

    @property
    def target_namespace(self) -> str:
        """The dotted namespace, as the column will hold it."""
        return f"{self.catalog_slug}.{self.schema_slug}"


@dataclass(frozen=True, slots=True)
class Excluded:
    """A dataset that does not move now, and why."""

    dataset_id: str
    reason: Reason
    detail: str
    """What exactly is in the way, for a person."""
    log_rows: int
    """Its succeeded log rows in the legacy namespace."""


Judged = Planned | Excluded


def classify(facts: DatasetFacts, *, again: bool = False) -> Judged:
    """Judge one dataset. ``again`` takes those that were taken back by a revert.

    The ledger speaks first: what was planned once stays as it is, whatever the tables say today.
    """
    verdict = _by_ledger(facts, again=again) or obstacle(facts)
    if verdict is not None:
        reason, detail = verdict
        return Excluded(facts.dataset_id, reason, detail, facts.legacy_rows)
    return _planned(facts)


def judged(
    facts: Iterable[DatasetFacts], *, again: bool = False, limit: int | None = None, terms: Terms | None = None
) -> Iterator[Judged]:
    """Judge each; of what can move, only the first ``limit`` are planned. One at a time: nothing is kept.

    ``terms``: those under which they would move, where somebody wants the warnings too.
    """
    planned = 0
    for each in facts:
        verdict = classify(each, again=again)
        if isinstance(verdict, Planned):
            planned += 1
            if limit is not None and planned > limit:
                verdict = Excluded(verdict.dataset_id, Reason.BEYOND_LIMIT, str(verdict.target), verdict.log_rows)
            elif terms is not None:
                verdict = replace(verdict, cautions=cautions(each, terms))
        yield verdict


def obstacle(facts: DatasetFacts) -> Verdict:
    """What keeps the dataset from moving, whatever the ledger says: the reason and its detail, or nothing."""
    return _by_table(facts) or _by_place(facts) or _by_name(facts)


def legacy_name(identifier: str) -> str:
    """The table's own name in a legacy identifier; may be empty or otherwise unfit."""
    return identifier.removeprefix(LEGACY_NAMESPACE + ".")


def _by_ledger(facts: DatasetFacts, *, again: bool) -> Verdict:
    if facts.state is None:
        return None
    if facts.state is State.DONE and facts.direction is Direction.BACK:
        return None if again else (Reason.REVERTED, "")
    return _OF_STATE[facts.state], facts.park_code or ""


def _by_table(facts: DatasetFacts) -> Verdict:
    if not facts.exists:
        return Reason.NO_DATASET, ""
    if facts.iceberg_namespace is not None:
        return Reason.ALREADY_PLACED, facts.iceberg_namespace
    if facts.succeeded_rows == 0:
        return Reason.NOT_SUCCEEDED, ""
    if facts.source_identifier is None:
        return Reason.NOT_LEGACY, ""
    return None


def _by_place(facts: DatasetFacts) -> Verdict:
    if facts.schema_id is None:
        return Reason.NO_SCHEMA, ""
    if not facts.schema_exists:
        return Reason.SCHEMA_MISSING, facts.schema_id
    if not facts.catalog_exists:
        return Reason.CATALOG_MISSING, facts.schema_slug or facts.schema_id
    if facts.catalog_workspace_id != facts.workspace_id:
        return Reason.WORKSPACE_MISMATCH, f"its catalog is of workspace {facts.catalog_workspace_id}"
    if facts.catalog_slug is None or facts.schema_slug is None:
        return Reason.SLUG_MISSING, "catalog" if facts.catalog_slug is None else "schema"
    return None


def _by_name(facts: DatasetFacts) -> Verdict:
    if facts.legacy_identifiers > 1:
        return Reason.AMBIGUOUS_SOURCE, f"{facts.legacy_identifiers} legacy identifiers"
    if facts.source_shared:
        return Reason.SHARED_SOURCE, facts.source_identifier or ""
    unfit = _unfit(legacy_name(facts.source_identifier or ""))
    if unfit:
        return Reason.NAME_INVALID, unfit
    if facts.target_shared:
        return Reason.TARGET_CONFLICT, f"{facts.catalog_slug}.{facts.schema_slug}"
    return None


def _unfit(name: str) -> str:
    """Why catalogs cannot hold the name, or nothing."""
    if not name:
        return "empty"
    if len(name) > MAX_NAME:
        return f"{len(name)} characters, at most {MAX_NAME} fit"
    if any(unicodedata.category(character) == "Cc" for character in name):
        return "control character"
    if name in _FOLDERS:
        return "names a folder in every path"
    if name != name.strip():
        return "blank at an end"
    refused = sorted(_REFUSED_IN_NAMES.intersection(name))
    return f"contains {refused[0]}" if refused else ""


def _planned(facts: DatasetFacts) -> Planned:
    assert facts.workspace_id is not None
    assert facts.source_identifier is not None
    assert facts.catalog_slug is not None
    assert facts.schema_slug is not None
    name = legacy_name(facts.source_identifier)
    return Planned(
        dataset_id=facts.dataset_id,
        workspace_id=facts.workspace_id,
        source=TableIdentifier((LEGACY_NAMESPACE,), name),
        target=TableIdentifier((facts.catalog_slug, facts.schema_slug), name),
        catalog_slug=facts.catalog_slug,
        schema_slug=facts.schema_slug,
        log_rows=facts.legacy_rows,
        claim=facts.claim,
    )
