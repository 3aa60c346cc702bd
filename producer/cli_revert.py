"""``reroot revert``: take moves back, by the same machine with the direction turned.

Responsible for: the command, its options, its lines.
Must not know: SQL, what a worker then does.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from producer import reach, scope
from producer.ends import LEFT
from producer.question import Yes, ask
from producer.screen import Screen, count
from worker.controlplane import operations, reversal
from worker.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.controlplane.connection import Connection

All = Annotated[bool, typer.Option("--all", help="Everything that is flipped or done.")]


def revert(
    datasets: scope.BareIds = None,
    *,
    dataset: scope.Datasets = None,
    everything: All = False,
    limit: scope.Limit = None,
    workspace: scope.Workspace = None,
    catalog: scope.Catalog = None,
    yes: Yes = False,
) -> None:
    """Take moves back: the table gets its legacy name again; nothing is copied, nothing is lost."""
    ids = scope.given_ids(dataset, datasets, bare=True)
    scope.check_usage(ids, everything=everything, narrowed=scope.narrowed(limit, workspace, catalog))
    settings = load_settings()
    settings.broker()  # said before anything is written
    screen = Screen()
    with reach.controlplane(settings) as connection:
        chosen = scope.scope_of(connection, ids, workspace, catalog)
        if everything:
            number = min(reversal.revertible(connection, chosen), limit or sys.maxsize)
            ask(f"Take {count(number, 'dataset')} back to the legacy namespace?", yes=yes)
        turned = reversal.revert_all(connection, chosen, limit)
        left = set(chosen.dataset_ids or ()) - set(turned)
        _show_left(connection, sorted(left), screen)
        screen.line(f"{count(len(turned), 'dataset')} turned back.")
        if turned:
            reach.publish(settings, connection)
            screen.line("Next: reroot status --watch")
    if left or not turned:
        raise typer.Exit(LEFT)


def _show_left(connection: Connection, left: Sequence[str], screen: Screen) -> None:
    states = operations.states(connection, left)
    for dataset_id in left:
        standing = states.get(dataset_id)
        screen.line(f"{dataset_id}  stays: {standing.value if standing else 'never planned'}")
