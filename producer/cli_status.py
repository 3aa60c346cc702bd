"""``reroot status``: how the moves stand.

Responsible for: the command, its text form, watching.
Must not know: SQL.

``--json`` is one document, the fields of ``worker.controlplane.reporting.Status``: ``catalogs`` (each with
``workspace_id``, ``catalog`` and a count per state: ``queued``, ``flipped``, ``done``, ``parked``, ``reverted``),
``running``, ``due``, ``in_grace``, ``pairs`` (datasets whose table two names hold, by ``in_grace``,
``between_attempts`` and ``parked``), ``oldest``, ``rate`` (``flipped`` and ``done`` in ``seconds``), ``waiting``,
``busy``, ``warehouses`` (each with ``warehouse``, the ``strategy`` in force or null, its ``reason`` and
``set_by_operator``), ``warehouses_away``, ``failures``, ``workers``. Ages and distances are in seconds.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from producer import reach, scope
from producer.ends import START_WORKER
from producer.screen import Screen, age, count
from producer.strategies import in_force, told
from worker.controlplane import reporting
from worker.settings import load_settings

if TYPE_CHECKING:
    from worker.controlplane.reporting import Status

Watch = Annotated[bool, typer.Option("--watch", help="Show it again every two seconds, until Ctrl-C.")]

WATCH_SECONDS: Final = 2.0

_LOUD: Final = "bold red"

_STRATEGIES: Final = 5
"""Lines about strategies that the text has at most."""


def status(
    *,
    dataset: scope.Datasets = None,
    more: scope.MoreIds = None,
    workspace: scope.Workspace = None,
    catalog: scope.Catalog = None,
    watch: Watch = False,
    as_json: scope.AsJson = False,
) -> None:
    """Show how the moves stand: per catalog, what waits for what, the rate, the last failures."""
    ids = scope.given_ids(dataset, more)
    screen = Screen()
    settings = load_settings()
    with reach.controlplane(settings) as connection:
        chosen = scope.scope_of(connection, ids, workspace, catalog)
        try:
            while True:
                now = reporting.status(connection, chosen)
                if watch and screen.terminal:
                    screen.out.clear()
                if as_json:
                    screen.json(_shape(now, settings.strategy))
                else:
                    show_status(now, screen, settings.strategy)
                if not watch:
                    return
                time.sleep(WATCH_SECONDS)
        except KeyboardInterrupt:
            return  # the ordinary end of watching


def _shape(now: Status, setting: str) -> dict[str, Any]:
    return {**asdict(now), "warehouses": [asdict(in_force(known, setting)) for known in now.warehouses]}


def show_status(now: Status, screen: Screen, setting: str) -> None:
    """The text form. ``setting`` is that of the strategy."""
    _show_refused_credentials(now, screen)
    _show_catalogs(now, screen)
    _show_work(now, screen)
    _show_strategies(now, screen, setting)
    _show_waiting(now, screen)
    _show_failures(now, screen)


def _show_refused_credentials(now: Status, screen: Screen) -> None:
    """Above everything else: no job fails by it, so nothing else would show that a person must act."""
    refused = [away for away in now.warehouses_away if away.credentials_refused]
    for away in refused:
        screen.line(
            f"CREDENTIALS REFUSED by warehouse {away.warehouse} for {age(away.seconds)}: nothing moves there", _LOUD
        )
        screen.line(f"  {away.reason}")
    if refused:
        screen.line("  Mend what goes with REROOT_CATALOG_AUTH (reroot config, reroot doctor). Workers read a")
        screen.line("  replaced file by themselves; after a change of their environment restart them")
        screen.line()


def _show_strategies(now: Status, screen: Screen, setting: str) -> None:
    lines = told(in_force(known, setting) for known in now.warehouses)
    for line in lines[:_STRATEGIES]:
        screen.line(f"strategy   {line}")
    if len(lines) > _STRATEGIES:
        screen.line(f"           and {len(lines) - _STRATEGIES:,} more (reroot warehouse)")


def _show_catalogs(now: Status, screen: Screen) -> None:
    if not now.catalogs:
        screen.line("No move has been ordered. Next: reroot plan")
        return
    twins = len({row.catalog for row in now.catalogs}) < len(now.catalogs)
    rows: list[tuple[object, ...]] = [
        (
            f"{row.catalog} ({row.workspace_id[:8]})" if twins else row.catalog,
            row.queued,
            row.flipped,
            row.done,
            row.parked,
            row.reverted,
        )
        for row in now.catalogs
    ]
    if len(rows) > 1:
        rows.append(("total", *(sum(_int(row[column]) for row in rows) for column in range(1, 6))))
    screen.table(("catalog", "queued", "flipped", "done", "parked", "reverted"), rows, numbers=(1, 2, 3, 4, 5))


def _show_work(now: Status, screen: Screen) -> None:
    screen.line()
    if now.workers:
        slots = sum(worker.concurrency for worker in now.workers)
        screen.line(f"workers    {count(len(now.workers), 'alive', 'alive')}, {count(slots, 'process', 'processes')}")
    else:
        screen.line("workers    none alive: nothing moves until one starts")
        screen.line(f"           {START_WORKER}")
    screen.line(f"jobs       {now.running:,} running, {now.due:,} due, {now.in_grace:,} in their grace")
    if now.pairs.between_attempts or now.pairs.parked:
        kinds = f"{now.pairs.parked:,} parked, {now.pairs.between_attempts:,} between attempts"
        screen.line(f"pairs      two names hold a table: {kinds}; maintenance must skip what reroot.pairs lists")
    rate = now.rate
    screen.line(f"rate       {rate.flipped:,} flipped and {rate.done:,} done in the last {age(rate.seconds)}")
    if now.oldest is not None:
        screen.line(f"oldest     {now.oldest.dataset_id}, {now.oldest.state}, due for {age(now.oldest.seconds)}")


def _show_waiting(now: Status, screen: Screen) -> None:
    for away in now.warehouses_away:
        screen.line(
            f"away       warehouse {away.warehouse} for {age(away.seconds)}, asked again {_when(away.retry_in)}"
        )
        if away.reason:
            screen.line(f"           {away.reason}")
    for busy in now.busy:
        screen.line(f"busy       {busy.dataset_id}, lock held for {age(busy.seconds)}, tried {busy.times} times")
    for waiting in now.waiting:
        datasets = count(waiting.datasets, "dataset")
        screen.line(f"waiting    {datasets}, again {_when(waiting.next_in)}: {waiting.waiting_for}")


def _show_failures(now: Status, screen: Screen) -> None:
    if not now.failures:
        return
    screen.line()
    screen.heading("Parked last:")
    for failure in now.failures:
        screen.line(f"{failure.dataset_id}  {failure.code}, {age(failure.seconds)} ago")
        screen.line(f"  {failure.text}")
    screen.line("Next: reroot show DATASET says what to do")


def _when(seconds: float) -> str:
    return "now" if seconds <= 0 else f"in {age(seconds)}"


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
