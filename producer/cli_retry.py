"""``reroot retry``: parked datasets go back to work; log rows that came late are named rightly.

Responsible for: the command, its options, its lines.
Must not know: SQL, what a worker then does.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from producer import reach, scope
from producer.ends import LEFT, USAGE, CommandError
from producer.screen import Screen, count
from worker.controlplane import operations
from worker.controlplane.operations import Late, Retried
from worker.moves.machine import State
from worker.outcome import ParkCode
from worker.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.controlplane.connection import Connection

Codes = Annotated[
    list[ParkCode] | None, typer.Option("--code", metavar="CODE", help="Everything that is parked with this code.")
]

All = Annotated[bool, typer.Option("--all", help="Everything that is parked, whatever its code.")]
Mended = Annotated[
    bool,
    typer.Option("--mended", help="Also rename again to names under which the table could not be read."),
]


class Acceptable(StrEnum):
    """The codes that an operator may accept: Reroot could not check the table, and found no damage."""

    SOAK_UNSUPPORTED = ParkCode.SOAK_UNSUPPORTED.value


Accepted = Annotated[
    Acceptable | None,
    typer.Option("--accept", metavar="CODE", help="Accept what this code reports, for these datasets, from now on."),
]

_LATE = {
    Late.NOT_DONE: "its place is not what the ledger says: reroot show",
    Late.BUSY: "another program holds its lock: try again",
}


def retry(
    datasets: scope.BareIds = None,
    *,
    dataset: scope.Datasets = None,
    code: Codes = None,
    accept: Accepted = None,
    everything: All = False,
    limit: scope.Limit = None,
    workspace: scope.Workspace = None,
    catalog: scope.Catalog = None,
    mended: Mended = False,
) -> None:
    """Try parked datasets again, by id or by code; for a done one, rewrite log rows that were written late."""
    ids = scope.given_ids(dataset, datasets, bare=True)
    narrowed = scope.narrowed(limit, workspace, catalog)
    scope.check_usage(ids, everything=everything or bool(code), narrowed=narrowed, all_of="--code CODE or --all")
    if accept is not None and not ids:
        raise CommandError("--accept needs ids: each dataset is accepted separately", USAGE)
    settings = load_settings()
    settings.broker()  # said before anything is written
    screen = Screen()
    failed = False
    with reach.controlplane(settings) as connection:
        chosen = scope.scope_of(connection, ids, workspace, catalog)
        if chosen.dataset_ids is None:
            codes = [each.value for each in code or ()]
            retried = operations.retry_codes(connection, codes, chosen, limit, mended=mended)
            _report(retried, screen)
            if not retried:
                screen.line("Nothing is parked" + (f" with {', '.join(code)}." if code else " in this scope."))
        else:
            retried, failed = _by_name(connection, chosen.dataset_ids, accept, screen, mended=mended)
        if retried:
            reach.publish(settings, connection)
            screen.line("Next: reroot status --watch")
    if failed:
        raise typer.Exit(LEFT)


def _by_name(
    connection: Connection, ids: Sequence[str], accept: Acceptable | None, screen: Screen, *, mended: bool
) -> tuple[list[Retried], bool]:
    """What was queued again, and whether something that was asked for could not be done."""
    states = operations.states(connection, ids)
    unknown = [each for each in ids if each not in states]
    if unknown:
        raise CommandError(f"never planned: {', '.join(unknown)}; nothing was done (reroot move --dataset ID)")
    if accept is None:
        retried = operations.retry_datasets(connection, ids, mended=mended)
    else:
        retried = operations.retry_accepting(connection, ids, accept.value)
    _report(retried, screen)
    handled = {each.dataset_id for each in retried}
    if accept is not None:
        left = [each for each in ids if each not in handled]
        for dataset_id in left:
            screen.line(
                f"{dataset_id}: not parked with {accept.value}, nothing was accepted (reroot show {dataset_id})"
            )
        return retried, bool(left)
    failed = False
    for dataset_id in ids:
        if dataset_id not in handled:
            line, well = _not_parked(connection, dataset_id, states[dataset_id])
            screen.line(line)
            failed = failed or not well
    return retried, failed


def _not_parked(connection: Connection, dataset_id: str, state: State) -> tuple[str, bool]:
    if state is not State.DONE:
        return f"{dataset_id}: {state}, a worker is to take it anyway", True
    rows = operations.rewrite_late_rows(connection, dataset_id)
    if isinstance(rows, Late):
        return f"{dataset_id}: {_LATE[rows]}", False
    return f"{dataset_id}: {count(rows, 'late log row')} rewritten", True


def _report(retried: Sequence[Retried], screen: Screen) -> None:
    if not retried:
        return
    screen.line(f"{count(len(retried), 'dataset')} will be tried again.")
    for code, number in sorted(Counter(each.park_code for each in retried).items()):
        screen.line(f"  {code}  {number:,}")
