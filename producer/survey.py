"""A plan as counts and a few examples, warnings included: what a person reads of 100,000 verdicts.

Responsible for: adding verdicts up, group by group, in memory that does not grow with them.
Must not know: where verdicts come from, the screen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from producer.plan import Excluded, Judged, Planned, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from producer.caution import Caution


EXAMPLES: Final = 3
"""Datasets that are named of each warning."""


@dataclass(slots=True)
class Group:
    """What goes to one place."""

    datasets: int = 0
    log_rows: int = 0


@dataclass(slots=True)
class Survey:
    """Counts over the verdicts that were fed to it."""

    shown: int
    """How many planned datasets are kept to be shown."""
    planned: int = 0
    log_rows: int = 0
    groups: dict[tuple[str, str], Group] = field(default_factory=dict)
    """By workspace and target namespace, in the order of the plan."""
    first: list[Planned] = field(default_factory=list)
    excluded: Counter[Reason] = field(default_factory=Counter)
    cautions: Counter[Caution] = field(default_factory=Counter)
    cautioned: list[tuple[Caution, str]] = field(default_factory=list)
    """The first few datasets of each warning."""

    def over(self, verdicts: Iterable[Judged]) -> Iterator[Judged]:
        """Pass the verdicts on, counted."""
        for verdict in verdicts:
            self.add(verdict)
            yield verdict

    def add(self, verdict: Judged) -> None:
        """Count one."""
        if isinstance(verdict, Excluded):
            self.excluded[verdict.reason] += 1
            return
        self.planned += 1
        self.log_rows += verdict.log_rows
        group = self.groups.setdefault((verdict.workspace_id, verdict.target_namespace), Group())
        group.datasets += 1
        group.log_rows += verdict.log_rows
        if len(self.first) < self.shown:
            self.first.append(verdict)
        for caution in verdict.cautions:
            self.cautions[caution] += 1
            if self.cautions[caution] <= EXAMPLES:
                self.cautioned.append((caution, verdict.dataset_id))

    def why_empty(self) -> str:
        """The reasons with their counts, most frequent first: ``done 12, no_schema 3``."""
        if not self.excluded:
            return "no dataset is in scope"
        ordered = sorted(self.excluded.items(), key=lambda item: (-item[1], item[0]))
        return ", ".join(f"{reason} {number:,}" for reason, number in ordered)


def planned_shape(verdict: Planned) -> dict[str, Any]:
    """A planned dataset in ``--json`` and ``--csv``."""
    return {
        "dataset_id": verdict.dataset_id,
        "workspace_id": verdict.workspace_id,
        "source": str(verdict.source),
        "target": str(verdict.target),
        "log_rows": verdict.log_rows,
        "warnings": [caution.value for caution in verdict.cautions],
    }


def excluded_shape(verdict: Excluded) -> dict[str, Any]:
    """A dataset that does not move, in ``--json`` and ``--csv``."""
    return {
        "dataset_id": verdict.dataset_id,
        "reason": verdict.reason.value,
        "detail": verdict.detail,
        "log_rows": verdict.log_rows,
    }


def shape(verdict: Judged) -> dict[str, Any]:
    """Either."""
    return planned_shape(verdict) if isinstance(verdict, Planned) else excluded_shape(verdict)
