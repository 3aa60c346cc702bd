"""A plan for people and for programs.

Responsible for: the three forms of ``reroot plan`` and ``reroot move --dry-run``. All of them stream.
Must not know: where verdicts come from.

``--json`` is one document::

    {"datasets": [{"dataset_id", "workspace_id", "source", "target", "log_rows", "warnings": [warning]} for what moves,
                  {"dataset_id", "reason", "detail", "log_rows"} for what does not, …],
     "planned": number, "log_rows": number that the flips will rewrite, "excluded": {reason: number},
     "warnings": {warning: number}}

``--csv`` has one line per dataset: ``dataset_id, workspace_id, source, target, log_rows, reason, detail, warnings``,
the warnings parted by blanks.
"""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any, Final, TextIO

from producer.caution import REMEDY
from producer.plan import ADVICE
from producer.screen import count
from producer.survey import Survey, shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from producer.plan import Judged
    from producer.screen import Screen

PLACES: Final = 25
"""How many places the text names."""

COLUMNS: Final = ("dataset_id", "workspace_id", "source", "target", "log_rows", "reason", "detail", "warnings")


def write_json(verdicts: Iterable[Judged], stream: TextIO) -> Survey:
    """One document, a dataset a line, written as the verdicts come."""
    survey = Survey(shown=0)
    stream.write('{"datasets": [')
    separator = "\n"
    for verdict in survey.over(verdicts):
        stream.write(separator + json.dumps(shape(verdict), ensure_ascii=False))
        separator = ",\n"
    tail: dict[str, Any] = {
        "planned": survey.planned,
        "log_rows": survey.log_rows,
        "excluded": {reason.value: number for reason, number in sorted(survey.excluded.items())},
        "warnings": {caution.value: number for caution, number in sorted(survey.cautions.items())},
    }
    stream.write("\n], " + json.dumps(tail)[1:] + "\n")
    return survey


def write_csv(verdicts: Iterable[Judged], stream: TextIO) -> Survey:
    """A header and one line per dataset."""
    survey = Survey(shown=0)
    writer = csv.DictWriter(stream, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for verdict in survey.over(verdicts):
        line = shape(verdict)
        writer.writerow({**line, "warnings": " ".join(line.get("warnings", ()))})
    return survey


def write_text(verdicts: Iterable[Judged], screen: Screen, *, shown: int) -> Survey:
    """Places with their counts, the first ``shown`` datasets, warnings, then what does not move and why."""
    survey = Survey(shown=shown)
    for _ in survey.over(verdicts):
        pass
    show_planned(survey, screen)
    show_cautions(survey, screen)
    show_excluded(survey, screen)
    return survey


def show_planned(survey: Survey, screen: Screen) -> None:
    """What moves where."""
    if not survey.planned:
        screen.line("Nothing can move.")
        return
    screen.heading(
        f"{count(survey.planned, 'dataset')} can move; the flips will rewrite {count(survey.log_rows, 'log row')}."
    )
    places = [(place, group.datasets, group.log_rows) for (_, place), group in survey.groups.items()]
    screen.table(("to", "datasets", "log rows"), places[:PLACES], numbers=(1, 2))
    if len(places) > PLACES:
        screen.line(f"and {len(places) - PLACES:,} more places")
    if survey.first:
        screen.line()
        # One under the other: two identifiers side by side would not fit 80 columns.
        for verdict in survey.first:
            screen.line(verdict.dataset_id)
            screen.line(f"     {verdict.source}")
            screen.line(f"  -> {verdict.target}")
        if survey.planned > len(survey.first):
            screen.line(f"and {survey.planned - len(survey.first):,} more (--rows N, --csv, --json)")


def show_cautions(survey: Survey, screen: Screen) -> None:
    """What should be known before the planned ones move, and the first few of each kind."""
    if not survey.cautions:
        return
    screen.line()
    screen.heading(f"{count(survey.cautions.total(), 'warning')}; these datasets can move all the same:")
    screen.table(
        ("warning", "datasets", "what to do"),
        [(caution.value, number, REMEDY[caution]) for caution, number in sorted(survey.cautions.items())],
        numbers=(1,),
    )
    for caution, dataset_id in sorted(survey.cautioned):
        screen.line(f"  {caution}  {dataset_id}")


def show_excluded(survey: Survey, screen: Screen) -> None:
    """What does not, and what to do about it."""
    if not survey.excluded:
        return
    screen.line()
    screen.heading(f"{count(survey.excluded.total(), 'dataset')} not planned:")
    ordered = sorted(survey.excluded.items(), key=lambda item: (-item[1], item[0]))
    screen.table(
        ("reason", "datasets", "what to do"),
        [(reason.value, number, ADVICE[reason]) for reason, number in ordered],
        numbers=(1,),
    )
