"""``reroot cancel``: remove moves that have not begun from the ledger.

Responsible for: the command, its options, its lines.
Must not know: SQL.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from producer import reach, scope
from producer.ends import LEFT
from producer.screen import Screen, count
from worker.controlplane import cancelling
from worker.controlplane.cancelling import Stays
from worker.settings import load_settings

if TYPE_CHECKING:
    from worker.controlplane.facts import Scope

All = Annotated[bool, typer.Option("--all", help="Every move that is queued and has not begun.")]

_WHY: Final = {
    Stays.NOT_QUEUED: "not queued any more: reroot show says what can be done",
    Stays.GOING_BACK: "queued to be taken back: when that is done, reroot move --again orders the move anew",
    Stays.RUNNING: "an attempt is running: try again, or reroot revert once it is flipped",
    Stays.OPEN_ENTRY: "a pointer of an earlier attempt may exist: try again after the next attempt, which settles it",
}


def cancel(
    datasets: scope.BareIds = None,
    *,
    dataset: scope.Datasets = None,
    everything: All = False,
    limit: scope.Limit = None,
    workspace: scope.Workspace = None,
    catalog: scope.Catalog = None,
) -> None:
    """Remove moves that have not begun from the ledger; a move that has begun stays."""
    ids = scope.given_ids(dataset, datasets, bare=True)
    scope.check_usage(ids, everything=everything, narrowed=scope.narrowed(limit, workspace, catalog))
    settings = load_settings()
    screen = Screen()
    with reach.controlplane(settings) as connection:
        chosen = scope.scope_of(connection, ids, workspace, catalog)
        cancelled = cancelling.cancel(connection, chosen, limit)
        staying = {} if limit is not None and len(cancelled) == limit else cancelling.staying(connection, chosen)
    screen.line(f"{count(len(cancelled), 'move')} cancelled.")
    left = _show_staying(chosen, set(cancelled), staying, screen)
    if left or not cancelled:
        raise typer.Exit(LEFT)


def _show_staying(chosen: Scope, cancelled: set[str], staying: dict[str, Stays], screen: Screen) -> bool:
    """Show the datasets that stay: given ids one by one, others as counts. Returns whether any stays."""
    if chosen.dataset_ids is None:
        for why, number in sorted(Counter(staying.values()).items()):
            screen.line(f"Not cancelled: {count(number, 'dataset')}, {_WHY[why]}")
        return bool(staying)
    left = [each for each in chosen.dataset_ids if each not in cancelled]
    for dataset_id in left:
        screen.line(f"{dataset_id}  {_WHY[staying[dataset_id]] if dataset_id in staying else 'never planned'}")
    return bool(left)
