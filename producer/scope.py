"""Which datasets a command is about: the options, and what they mean for the control plane.

Responsible for: the options that several commands share, and turning ids as people type them into those of the
tables. An id that nobody knows is an error before anything is done.
Must not know: what is done with the datasets.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Final

import typer

from producer.ends import LEFT, USAGE, CommandError
from worker.controlplane import planning, scoping
from worker.controlplane.facts import DatasetFacts, Scope

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.controlplane.connection import Connection

Datasets = Annotated[
    list[str] | None,
    typer.Option("--dataset", metavar="ID", help="This dataset, and the ids that follow it: a canary."),
]
BareIds = Annotated[list[str] | None, typer.Argument(metavar="DATASET", help="These datasets.")]
MoreIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="More ids after --dataset.")]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="At most so many, in a stable order.", show_default=False)
]
Workspace = Annotated[str | None, typer.Option("--workspace", metavar="ID", help="Only this workspace's datasets.")]
Catalog = Annotated[str | None, typer.Option("--catalog", metavar="SLUG", help="Only datasets of this catalog.")]
Again = Annotated[bool, typer.Option("--again", help="Also what was moved and taken back by a revert.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]

_SHOWN_IDS: Final = 3


def given_ids(datasets: Sequence[str] | None, more: Sequence[str] | None, *, bare: bool = False) -> tuple[str, ...]:
    """The ids of ``--dataset`` and those that follow it; each may hold several, parted by commas.

    ``bare``: ids may stand without ``--dataset``. Raises CommandError.
    """
    if more and not datasets and not bare:
        raise CommandError(f"{more[0]}: say --dataset before ids", USAGE)
    ids = [text.split(",") for text in (*(datasets or ()), *(more or ()))]
    return tuple(part.strip() for parts in ids for part in parts if part.strip())


def narrowed(*options: object) -> bool:
    """Whether any of ``--limit``, ``--workspace`` and ``--catalog`` was given."""
    return any(option is not None for option in options)


def check_usage(ids: Sequence[str], *, everything: bool, narrowed: bool, all_of: str = "--all") -> None:
    """Check that ids or ``all_of`` were given, not both; options that narrow need ``all_of``. Raises CommandError."""
    if everything and ids:
        raise CommandError(f"--dataset and {all_of} exclude each other", USAGE)
    if not everything and not ids:
        raise CommandError(f"give --dataset ID… or {all_of}", USAGE)
    if ids and narrowed:
        raise CommandError(f"--limit, --workspace and --catalog go with {all_of}", USAGE)


def scope_of(
    connection: Connection, ids: Sequence[str], workspace: str | None = None, catalog: str | None = None
) -> Scope:
    """The scope; no ids: all datasets. Raises CommandError for what cannot be an id here, or does not exist."""
    owner = None if workspace is None else scoping.workspace_id(connection, workspace)
    if workspace is not None and owner is None:
        raise _missing("workspace", workspace, scoping.workspaces(connection))
    if catalog is not None and catalog not in (slugs := scoping.catalogs(connection, owner)):
        raise _missing("catalog", catalog, slugs)
    if not ids:
        return Scope(workspace_id=owner, catalog_slug=catalog)
    known, unfit = scoping.dataset_ids(connection, tuple(ids))
    if unfit:
        raise _unknown(unfit)
    return Scope(dataset_ids=known, workspace_id=owner, catalog_slug=catalog)


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


def _missing(kind: str, given: str, existing: Sequence[str]) -> CommandError:
    """The error for a name that does not exist. It lists existing names, the nearest by spelling first."""
    near = get_close_matches(given, existing, n=_SHOWN_IDS)
    shown = [*near, *(each for each in existing if each not in near)][:_SHOWN_IDS]
    more = f" and {len(existing) - len(shown):,} more" if len(existing) > len(shown) else ""
    there = f"there are: {', '.join(shown)}{more}" if shown else "there is none"
    return CommandError(f"no such {kind}: {given or 'an empty name'}; {there}; nothing was done", LEFT)
