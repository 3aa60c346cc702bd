"""Which datasets a command is about: the options, and what they mean for the control plane.

Responsible for: the options that several commands share, and turning ids as people type them into those of the
tables. An id that nobody knows is an error before anything is done.
Must not know: what is done with the datasets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from producer.ends import LEFT, USAGE, CommandError
from worker.controlplane import planning
from worker.controlplane.facts import DatasetFacts, Scope

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.controlplane.connection import Connection

Datasets = Annotated[
    list[str] | None,
    typer.Option("--dataset", metavar="ID", help="This dataset, and the ids that follow it: a canary."),
]
MoreIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="More ids after --dataset.")]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="At most so many, in a stable order.", show_default=False)
]
Workspace = Annotated[str | None, typer.Option("--workspace", metavar="ID", help="Only this workspace's datasets.")]
Catalog = Annotated[str | None, typer.Option("--catalog", metavar="SLUG", help="Only datasets of this catalog.")]
Again = Annotated[bool, typer.Option("--again", help="Also what was moved and taken back by a revert.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]

_SHOWN_IDS: Final = 3


def given_ids(datasets: Sequence[str] | None, more: Sequence[str] | None) -> tuple[str, ...]:
    """The ids of ``--dataset`` and those that follow it; each may hold several, parted by commas."""
    if more and not datasets:
        raise CommandError(f"{more[0]}: say --dataset before ids", USAGE)
    return tuple(
        part.strip() for text in (*(datasets or ()), *(more or ())) for part in text.split(",") if part.strip()
    )


def scope_of(connection: Connection, ids: Sequence[str], workspace: str | None, catalog: str | None) -> Scope:
    """The scope; no ids: all datasets. Raises CommandError for what cannot be an id here."""
    if not ids:
        return Scope(workspace_id=workspace, catalog_slug=catalog)
    known, unfit = planning.dataset_ids(connection, tuple(ids))
    if unfit:
        raise _unknown(unfit)
    return Scope(dataset_ids=known, workspace_id=workspace, catalog_slug=catalog)


def facts_of(connection: Connection, scope: Scope, warehouse: str) -> Iterator[DatasetFacts] | list[DatasetFacts]:
    """The facts in scope. Ids that were given by name are all found, or nothing is. Raises CommandError."""
    facts = planning.stream_facts(connection, scope, warehouse=warehouse)
    if scope.dataset_ids is None:
        return facts
    found = list(facts)
    missing = set(scope.dataset_ids) - {each.dataset_id for each in found}
    if missing:
        raise _unknown(sorted(missing))
    return found


def _unknown(ids: Sequence[str]) -> CommandError:
    shown = ", ".join(ids[:_SHOWN_IDS]) + (f" and {len(ids) - _SHOWN_IDS} more" if len(ids) > _SHOWN_IDS else "")
    return CommandError(f"no such dataset: {shown}; nothing was done (reroot plan lists all)", LEFT)
