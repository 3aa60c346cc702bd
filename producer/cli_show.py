"""``reroot show DATASET``: one dataset's whole story.

Responsible for: the command, its forms, what to advise.
Must not know: SQL.

``--json`` is one document: ``dataset_id``, ``name``, ``workspace_id``, ``warehouse``, ``state`` and ``direction`` (null
where it was never planned), ``reason`` (why it is not planned, as in ``reroot plan``), ``source`` and ``target``
(identifiers), ``ledger`` (the row), ``log`` (the last succeeded row), ``open_entries`` (the journal), ``events``
(oldest first), ``next``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from producer import reach, scope
from producer.ends import START_WORKER
from producer.plan import ADVICE, Excluded, Judged, Planned, classify
from producer.screen import Screen, age
from worker.controlplane import history, workers
from worker.messages import Queue
from worker.moves.machine import WORKABLE, Direction, State
from worker.outcome import ParkCode
from worker.settings import SettingsError, load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.controlplane.connection import Connection
    from worker.settings import Settings

Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="The dataset's id.")]


@dataclass(frozen=True, slots=True)
class Story:
    """All that is known of one dataset."""

    dataset_id: str
    name: str | None
    workspace_id: str | None
    warehouse: str | None
    verdict: Judged | None
    """None where only the ledger knows the dataset: it was deleted with its log."""
    ledger: history.LedgerRow | None
    log: history.LogFigures | None
    open_entries: Sequence[history.OpenEntry]
    events: Sequence[history.Event]
    workers: int
    """Workers alive on the queue."""


def show(dataset: Dataset, *, as_json: scope.AsJson = False) -> None:
    """Show a dataset's history, both identifiers, and what to do next."""
    settings = load_settings()
    with reach.controlplane(settings) as connection:
        story = _story(connection, settings, dataset)
    if as_json:
        Screen.json(_shape(story))
    else:
        _show(story, Screen())


def _story(connection: Connection, settings: Settings, dataset: str) -> Story:
    chosen = scope.scope_of(connection, [dataset])
    dataset_id = (chosen.dataset_ids or (dataset,))[0]
    ledger = history.ledger_row(connection, dataset_id)
    # A dataset that was deleted has a story all the same.
    facts = [] if ledger is not None else list(scope.facts_of(connection, chosen, reach.warehouse_of(settings)))
    names = history.dataset_names(connection, dataset_id)
    workspace = names.workspace_id if names else ledger.workspace_id if ledger else None
    return Story(
        dataset_id=dataset_id,
        name=names.name if names else None,
        workspace_id=workspace,
        warehouse=_warehouse(connection, settings, ledger, workspace),
        verdict=classify(facts[0]) if facts else None,
        ledger=ledger,
        log=history.last_log_row(connection, dataset_id),
        open_entries=history.open_entries(connection, dataset_id),
        events=history.events(connection, dataset_id),
        workers=workers.alive(connection, Queue.MOVES),
    )


def _warehouse(
    connection: Connection, settings: Settings, ledger: history.LedgerRow | None, workspace: str | None
) -> str | None:
    """Where the last attempt found the table, else where the settings say that it is; None where they do not."""
    if ledger is not None and ledger.warehouse is not None:
        return ledger.warehouse
    try:
        return reach.warehouse_of_workspace(settings, connection, workspace) if workspace else None
    except SettingsError:
        return None


def next_step(story: Story) -> str:
    """What to do about the dataset."""
    row = story.ledger
    if row is None:
        if isinstance(story.verdict, Excluded):
            return ADVICE[story.verdict.reason]
        return f"reroot move --dataset {story.dataset_id} --wait"
    if row.state is State.PARKED and row.park_code == ParkCode.DIVERGED:
        return f"reroot resolve {row.dataset_id} --keep old|new, which shows first what the other side would lose"
    if row.state is State.PARKED:
        return row.park_remedy or f"mend the cause, then reroot retry {row.dataset_id}"
    if row.running:
        return f"nothing: {row.worker or 'a worker'} is at it"
    if row.state in WORKABLE and not story.workers:
        return f"start a worker, none is alive: {START_WORKER}"
    if row.state is State.QUEUED:
        return "nothing: it is due" if row.due_in <= 0 else f"nothing: it is tried again in {age(row.due_in)}"
    if row.state is State.FLIPPED:
        return "nothing: the other pointer goes " + ("now" if row.due_in <= 0 else f"in {age(row.due_in)}")
    if row.direction is Direction.BACK:
        return f"reroot move --dataset {row.dataset_id} --again, if it shall move after all"
    return f"nothing (reroot revert {row.dataset_id} would take it back)"


def _shape(story: Story) -> dict[str, Any]:
    row, verdict = story.ledger, story.verdict
    source, target = _identifiers(story)
    return {
        "dataset_id": story.dataset_id,
        "name": story.name,
        "workspace_id": story.workspace_id,
        "warehouse": story.warehouse,
        "state": row.state.value if row else None,
        "direction": row.direction.value if row else None,
        "reason": verdict.reason.value if isinstance(verdict, Excluded) else None,
        "source": source,
        "target": target,
        "ledger": _plain(asdict(row)) if row else None,
        "log": asdict(story.log) if story.log else None,
        "open_entries": [_plain(asdict(entry)) for entry in story.open_entries],
        "events": [_plain(asdict(event)) for event in story.events],
        "next": next_step(story),
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in values.items()}


def _identifiers(story: Story) -> tuple[str | None, str | None]:
    if story.ledger is not None:
        return story.ledger.legacy_identifier, story.ledger.placed_identifier
    if isinstance(story.verdict, Planned):
        return str(story.verdict.source), str(story.verdict.target)
    return (story.log.iceberg_table if story.log else None), None


def _show(story: Story, screen: Screen) -> None:
    source, target = _identifiers(story)
    screen.heading(f"{story.dataset_id}  {_standing(story)}")
    screen.line(f"  name      {story.name or '-'}")
    screen.line(f"  workspace {story.workspace_id or '-'}")
    screen.line(f"  warehouse {story.warehouse or '- (REROOT_WAREHOUSE is not set)'}")
    screen.line(f"  legacy    {source or '-'}")
    screen.line(f"  place     {target or '-'}")
    if story.log is not None:
        screen.line(f"  log       {story.log.iceberg_table or '-'}")
        screen.line(f"            snapshot {_or_dash(story.log.snapshot_id)}, rows {_or_dash(story.log.row_count)}")
    if story.ledger is not None:
        _show_ledger(story.ledger, screen)
    for entry in story.open_entries:
        _show_entry(entry, screen)
    if story.events:
        screen.line()
        screen.heading("History (UTC)")
        for event in story.events:
            _show_event(event, screen)
    screen.line()
    screen.line(f"Next: {next_step(story)}")


def _standing(story: Story) -> str:
    if story.ledger is not None:
        back = " (back)" if story.ledger.direction is Direction.BACK else ""
        return story.ledger.state.value + back
    if isinstance(story.verdict, Excluded):
        return f"not planned: {story.verdict.reason}"
    return "can move"


def _show_ledger(row: history.LedgerRow, screen: Screen) -> None:
    screen.line(f"  uuid      {row.table_uuid or '-'}")
    if row.flipped_at is not None:
        screen.line(f"  at flip   snapshot {_or_dash(row.snapshot_id)}, rows {_or_dash(row.row_count)}")
    screen.line(f"  attempts  {row.attempts}, busy {row.busy_count} times in a row")
    if row.waiting_for:
        screen.line(f"  waits     {row.waiting_for}")
    if row.park_code:
        screen.line(f"  parked    {row.park_code}: {row.park_text}")


def _show_entry(entry: history.OpenEntry, screen: Screen) -> None:
    screen.line()
    screen.heading(f"Journal entry {entry.id}, open: {entry.action} in warehouse {entry.warehouse}")
    screen.line(f"  pointer   {entry.identifier}")
    if entry.action == "withdraw":
        screen.line(f"  or, while it is withdrawn, {entry.quarantine}")
    screen.line(f"  uuid      {entry.table_uuid}")
    screen.line(f"  location  {entry.metadata_location}")


def _show_event(event: history.Event, screen: Screen) -> None:
    letter = f" ({event.transition})" if event.transition else ""
    arrow = f"  {event.from_state or 'new'} -> {event.to_state or 'removed'}" if event.transition else ""
    screen.line(f"  {event.at.strftime('%Y-%m-%d %H:%M:%S')}  {event.event}{letter}{arrow}")
    for key, value in event.detail.items():
        screen.line(f"    {key} {value}")


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
