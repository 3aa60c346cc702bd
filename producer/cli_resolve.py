"""``reroot resolve``: decide which side of a divergence is kept, knowing what the other would lose.

Responsible for: the command, what it shows before it asks, its lines.
Must not know: SQL, what a worker then does. The catalog is asked through the composition root.

Nothing else ever gives up a commit. No file is deleted, and the journal keeps the location of what was given up.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from producer import reach, scope
from producer.ends import LEFT, OUT_OF_REACH, USAGE, CommandError
from producer.question import Yes, ask
from producer.screen import Screen
from worker.controlplane import reversal
from worker.controlplane.reversal import Diverged, Keep
from worker.settings import Settings, load_settings

if TYPE_CHECKING:
    from worker.controlplane.connection import Connection
    from worker.wiring import Side

Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="A dataset that is parked as diverged.")]
KeepSide = Annotated[Keep, typer.Option("--keep", help="The side that stays: old is the name that the move leaves.")]

_SHOWN = 20


def resolve(dataset: Dataset, *, keep: KeepSide, yes: Yes = False) -> None:
    """Keep one side of a dataset whose two names have diverged; shows first what the other side would lose."""
    settings = load_settings()
    settings.broker()
    screen = Screen()
    with reach.controlplane(settings) as connection:
        divergence = _divergence(connection, dataset)
        if divergence.only not in {None, keep}:
            raise CommandError(
                f"{divergence.side(keep)} is a registration of an earlier target: only --keep {divergence.only} can be"
                " ordered; it shows what is to be written again",
                USAGE,
            )
        kept, lost = _sides(settings, connection, divergence, keep)
        _show(screen, kept, lost)
        ask(f"Give up {lost.identifier}?", yes=yes)
        if not reversal.resolve(connection, divergence, keep, lost.location):
            raise CommandError(f"{dataset} has changed meanwhile; nothing was done: reroot show {dataset}", LEFT)
        reach.publish(settings, connection)
        screen.line(f"Ordered. Next: reroot show {divergence.dataset_id}")


def _divergence(connection: Connection, dataset: str) -> Diverged:
    ids = scope.scope_of(connection, [dataset]).dataset_ids or ()
    found = reversal.diverged(connection, ids[0])
    if found is None:
        raise CommandError(f"{dataset} is not parked as diverged: reroot show {dataset}", LEFT)
    return found


def _sides(settings: Settings, connection: Connection, divergence: Diverged, keep: Keep) -> tuple[Side, Side]:
    """The two sides as the catalog shows them now. CommandError: there are no two, or it cannot be asked."""
    from worker import wiring  # noqa: PLC0415 - the catalogs take their time, and no other command needs them

    other = Keep.NEW if keep is Keep.OLD else Keep.OLD
    warehouse = reach.warehouse_of_workspace(settings, connection, divergence.workspace_id)
    try:
        kept, lost = wiring.sides(settings, warehouse, divergence.side(keep), divergence.side(other))
    except wiring.NoTableError as error:
        raise CommandError(
            f"{error}: nothing is left to decide (reroot retry {divergence.dataset_id})", LEFT
        ) from error
    except wiring.CatalogSilentError as error:
        raise CommandError(f"the catalog cannot be asked: {error}", OUT_OF_REACH) from error
    return kept, lost


def _show(screen: Screen, kept: Side, lost: Side) -> None:
    known = {snapshot.id for snapshot in kept.snapshots}
    alone = [snapshot for snapshot in lost.snapshots if snapshot.id not in known]
    screen.heading(f"Would keep: {kept.identifier}")
    screen.line(f"  {len(kept.snapshots)} snapshots, {_rows(kept.rows)} rows")
    screen.heading(f"Would give up: {lost.identifier}")
    screen.line(f"  {len(lost.snapshots)} snapshots, {_rows(lost.rows)} rows; only here:")
    for snapshot in alone[-_SHOWN:]:
        at = datetime.fromtimestamp(snapshot.committed_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        screen.line(f"  {at}  {snapshot.operation:<9} +{_rows(snapshot.added_rows)} rows")
        screen.line(f"    snapshot {snapshot.id}")
        screen.line(f"    written by {snapshot.writer or 'an engine that does not give its name'}")
    if len(alone) > _SHOWN:
        screen.line(f"  … and {len(alone) - _SHOWN} before these")
    if not alone:
        screen.line("  no snapshot of its own; changes of the schema or the properties")
    screen.line(f"  {lost.location}")
    screen.line("No file is deleted, and the journal keeps this location.")


def _rows(rows: int | None) -> str:
    return "?" if rows is None else f"{rows:,}"
