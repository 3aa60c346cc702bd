"""``reroot revert``: take moves back, by the same machine with the direction turned.

Responsible for: the command, its options, its lines.
Must not know: SQL, what a worker then does.
"""

from __future__ import annotations

from typing import Annotated

import typer

from producer import reach, scope
from producer.ends import LEFT, USAGE, CommandError
from producer.screen import Screen, count
from worker.controlplane import operations, reversal
from worker.settings import load_settings

Datasets = Annotated[list[str] | None, typer.Argument(metavar="DATASET", help="These datasets.")]
All = Annotated[bool, typer.Option("--all", help="Everything that is flipped or done.")]


def revert(datasets: Datasets = None, *, everything: All = False) -> None:
    """Take moves back: the table gets its legacy name again; nothing is copied, nothing is lost."""
    if bool(datasets) == everything:
        raise CommandError("say which: reroot revert DATASET… or reroot revert --all", USAGE)
    settings = load_settings()
    settings.broker()  # said before anything is written
    screen = Screen()
    ids: tuple[str, ...] = ()
    with reach.controlplane(settings) as connection:
        if everything:
            turned = reversal.revert_all(connection)
        else:
            ids = scope.scope_of(connection, datasets or [], None, None).dataset_ids or ()
            states = operations.states(connection, ids)
            turned = reversal.revert_datasets(connection, ids)
            for dataset_id in sorted(set(ids) - set(turned)):
                standing = states.get(dataset_id)
                screen.line(f"{dataset_id}  stays: {standing.value if standing else 'never planned'}")
        screen.line(f"{count(len(turned), 'dataset')} turned back.")
        if turned:
            reach.publish(settings, connection)
            screen.line("Next: reroot status --watch")
    if not turned or len(turned) < len(ids):
        raise typer.Exit(LEFT)
