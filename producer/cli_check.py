"""``reroot check``: the closing check.

Responsible for: the command and its forms. Exit 0 only if nothing movable is left.
Must not know: what counts as left (``closing``), SQL.

``--json`` is one document: ``passed``; ``left`` and ``apart``, by kind ``{"datasets", "log_rows", "examples"}``;
``in_grace``; ``pairs``, of the same shape, the datasets whose table two names hold; ``namespaces``, a list of
``{"namespace", "datasets_before", "log_rows_before", "datasets_now", "log_rows_now"}``, where *before* is before the
first move.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from producer import reach, scope
from producer.closing import Closing, advice, closing
from producer.ends import LEFT
from producer.screen import Screen, count
from worker.controlplane.census import NamespaceCount, namespaces
from worker.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from producer.closing import Heap, Left
    from producer.plan import Reason


def check(
    *,
    dataset: scope.Datasets = None,
    more: scope.MoreIds = None,
    workspace: scope.Workspace = None,
    catalog: scope.Catalog = None,
    as_json: scope.AsJson = False,
) -> None:
    """Check that nothing movable is left in the legacy namespace, and count what lies where, now and before."""
    ids = scope.given_ids(dataset, more)
    settings = load_settings()
    with reach.controlplane(settings) as connection:
        chosen = scope.scope_of(connection, ids, workspace, catalog)
        found = closing(scope.facts_of(connection, chosen, reach.warehouse_of(settings)))
        counts = namespaces(connection, chosen)
    screen = Screen()
    if as_json:
        screen.json(_shape(found, counts))
    else:
        _show(found, counts, screen)
    if not found.passed:
        raise typer.Exit(LEFT)


def _shape(found: Closing, counts: Sequence[NamespaceCount]) -> dict[str, Any]:
    return {
        "passed": found.passed,
        "left": {kind.value: asdict(heap) for kind, heap in sorted(found.left.items())},
        "apart": {kind.value: asdict(heap) for kind, heap in sorted(found.apart.items())},
        "in_grace": found.in_grace,
        "pairs": asdict(found.pairs),
        "namespaces": [asdict(each) for each in counts],
    }


def _show(found: Closing, counts: Sequence[NamespaceCount], screen: Screen) -> None:
    if found.passed:
        screen.heading("Nothing movable is left in the legacy namespace.")
    else:
        screen.heading(f"{count(sum(heap.datasets for heap in found.left.values()), 'dataset')} left:")
        _show_heaps(found.left, screen)
        _show_examples(found.left, screen)
    if found.in_grace:
        screen.line(f"{count(found.in_grace, 'dataset')} in the grace period: the old pointer still stands.")
    if found.pairs.datasets:
        screen.line(
            f"{count(found.pairs.datasets, 'dataset')} with two names: maintenance must skip what reroot.pairs lists."
        )
    if found.apart:
        screen.line()
        screen.heading("Legacy, with no place to go:")
        _show_heaps(found.apart, screen)
    screen.line()
    rows = [
        (each.namespace, each.datasets_now, each.datasets_before, each.log_rows_now, each.log_rows_before)
        for each in counts
    ]
    if len(rows) > 1:
        rows.append(_total(rows))
    screen.table(("namespace", "datasets", "before", "log rows", "before"), rows, numbers=(1, 2, 3, 4))
    screen.line("before: before the first move, without the rows that were written since")


def _total(rows: Sequence[tuple[str, int, int, int, int]]) -> tuple[str, int, int, int, int]:
    now, before, log_now, log_before = (sum(column) for column in zip(*(row[1:] for row in rows), strict=True))
    return "total", now, before, log_now, log_before


def _show_heaps(heaps: Mapping[Left, Heap] | Mapping[Reason, Heap], screen: Screen) -> None:
    kinds: list[tuple[Left | Reason, Heap]] = sorted(heaps.items())
    screen.table(
        ("kind", "datasets", "log rows", "what to do"),
        [(kind.value, heap.datasets, heap.log_rows, advice(kind)) for kind, heap in kinds],
        numbers=(1, 2),
    )


def _show_examples(heaps: Mapping[Left, Heap], screen: Screen) -> None:
    screen.line()
    for kind, heap in sorted(heaps.items()):
        for dataset_id in heap.examples:
            screen.line(f"  {kind.value}  {dataset_id}")
        if heap.datasets > len(heap.examples):
            screen.line(f"  {kind.value}  and {heap.datasets - len(heap.examples):,} more")
