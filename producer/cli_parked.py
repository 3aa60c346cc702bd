"""``reroot parked``: the parked datasets, by code.

Responsible for: the command, its forms.
Must not know: SQL, what a code means.

``--json`` is one document: ``codes`` (a count for each) and ``datasets`` (each with ``dataset_id``, ``code``, ``text``,
``remedy`` and ``seconds`` since it was parked).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from producer import reach, scope
from producer.screen import Screen
from worker.controlplane import reporting
from worker.outcome import ParkCode
from worker.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.controlplane.reporting import Failure

Codes = Annotated[
    list[ParkCode] | None, typer.Option("--code", metavar="CODE", help="Only this code; lists all its datasets.")
]

_SHOWN = 5
"""How many datasets of each code are listed where no code was given."""


def parked(
    *,
    dataset: scope.Datasets = None,
    more: scope.MoreIds = None,
    code: Codes = None,
    workspace: scope.Workspace = None,
    catalog: scope.Catalog = None,
    as_json: scope.AsJson = False,
) -> None:
    """List the parked datasets by code, with counts."""
    ids = scope.given_ids(dataset, more)
    settings = load_settings()
    screen = Screen()
    with reach.controlplane(settings) as connection:
        chosen = scope.scope_of(connection, ids, workspace, catalog)
        found = list(reporting.parked(connection, chosen, [each.value for each in code or ()]))
    if as_json:
        counts = Counter(each.code for each in found)
        screen.json({"codes": counts, "datasets": [asdict(each) for each in found]})
    elif found:
        _show(found, screen, shown=len(found) if code else _SHOWN)
    else:
        screen.line("Nothing is parked.")


def _show(found: Sequence[Failure], screen: Screen, *, shown: int) -> None:
    counts = Counter(each.code for each in found)
    screen.table(("code", "datasets"), [*counts.items(), ("total", counts.total())], numbers=(1,))
    for code, group in groupby(found, key=lambda each: each.code):
        listed = list(group)
        screen.line()
        screen.heading(code)
        for each in listed[:shown]:
            screen.line(f"  {each.dataset_id}  {each.text}")
        if len(listed) > shown:
            screen.line(f"  and {len(listed) - shown:,} more: reroot parked --code {code}")
    screen.line()
    screen.line("Next: reroot show DATASET says what to do")
