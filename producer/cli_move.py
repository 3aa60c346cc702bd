"""``reroot move``: order moves, and wait for them if asked to.

Responsible for: the command, its options, the order of its steps.
Must not know: the reasons (``plan``), SQL, Celery.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from producer import plan_output, reach, scope
from producer.canary import CANARY, Figures, figures, show_canary
from producer.ends import LEFT, START_WORKER, CommandError
from producer.plan import ADVICE, IN_PROGRESS, Excluded, Judged, Planned, Reason, judged
from producer.publish import write_ledger
from producer.screen import Screen, count
from producer.survey import Survey
from producer.waiting_room import wait_for
from worker.controlplane import workers
from worker.messages import Queue
from worker.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from worker.controlplane.connection import Connection
    from worker.settings import Settings

All = Annotated[bool, typer.Option("--all", help="Every dataset that can move.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be ordered, and order nothing.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return when each is flipped, done or parked.")]

_SETTLED = frozenset({*IN_PROGRESS, Reason.DONE})
"""Asked for by name and in one of these states: not moved by this command, and not a failure either."""


@dataclass(slots=True)
class Selection:
    """What the verdicts come to: counts, and of the datasets what the later steps need."""

    by_name: bool
    waits: bool
    survey: Survey = field(default_factory=lambda: Survey(shown=0))
    to_wait_for: list[str] = field(default_factory=list)
    refused: list[Excluded] = field(default_factory=list)
    """Asked for by name, and not to be moved now."""

    def over(self, verdicts: Iterable[Judged]) -> Iterator[Judged]:
        """Pass the verdicts on; ids are kept only where somebody waits for them."""
        for verdict in self.survey.over(verdicts):
            if isinstance(verdict, Planned):
                self._waits_for(verdict.dataset_id)
            elif self.by_name and verdict.reason not in _SETTLED:
                self.refused.append(verdict)
            elif verdict.reason is Reason.QUEUED or (self.by_name and verdict.reason in _SETTLED):
                self._waits_for(verdict.dataset_id)
            yield verdict

    def _waits_for(self, dataset_id: str) -> None:
        if self.waits:
            self.to_wait_for.append(dataset_id)


def move(
    *,
    dataset: scope.Datasets = None,
    more: scope.MoreIds = None,
    everything: All = False,
    limit: scope.Limit = None,
    workspace: scope.Workspace = None,
    catalog: scope.Catalog = None,
    dry_run: DryRun = False,
    wait: Wait = False,
    again: scope.Again = False,
) -> None:
    """Order moves: a few datasets by id (a canary), or all that can move. Ordering twice is safe."""
    ids = scope.given_ids(dataset, more)
    scope.check_usage(ids, everything=everything, narrowed=scope.narrowed(limit, workspace, catalog))
    settings = load_settings()
    if not dry_run:
        settings.broker()  # said before anything is written
    screen = Screen()
    selection = Selection(by_name=bool(ids), waits=wait)
    with reach.controlplane(settings) as reader, reach.controlplane(settings) as writer:
        chosen = scope.scope_of(reader, ids, workspace, catalog)
        facts = scope.facts_of(reader, chosen, reach.warehouse_of(settings))
        verdicts = selection.over(judged(facts, again=again, limit=limit, terms=reach.terms_of(settings)))
        if dry_run:
            _show(verdicts, selection, screen)
            return
        before = {each: figures(writer, each) for each in (chosen.dataset_ids or ())[:CANARY]}
        new = write_ledger(writer, verdicts)
        _refuse_empty(selection)
        _report(selection, new, screen)
        _publish(settings, writer, screen)
        _end(selection, before, writer, screen)


def _show(verdicts: Iterable[Judged], selection: Selection, screen: Screen) -> None:
    survey = plan_output.write_text(verdicts, screen, shown=10)
    screen.line()
    screen.line("Dry run: nothing was ordered.")
    if not survey.planned:
        _refuse_empty(selection)


def _refuse_empty(selection: Selection) -> None:
    """An empty selection is an error that says why, and never means everything."""
    survey = selection.survey
    if survey.planned or selection.to_wait_for:
        return
    advice = "reroot plan says what to do"
    if len(survey.excluded) == 1:
        advice = ADVICE[next(iter(survey.excluded))]
    raise CommandError(f"nothing to move: {survey.why_empty()} ({advice})")


def _report(selection: Selection, new: int, screen: Screen) -> None:
    survey = selection.survey
    if survey.planned:
        meanwhile = f" ({survey.planned - new:,} were ordered meanwhile)" if new < survey.planned else ""
        screen.line(f"{count(new, 'move')} ordered{meanwhile}.")
    if survey.excluded:
        screen.line(f"Not ordered now: {survey.why_empty()}.")
    for verdict in selection.refused:
        detail = f" ({verdict.detail})" if verdict.detail else ""
        screen.line(f"  {verdict.dataset_id}: {verdict.reason}{detail}")
        screen.line(f"    {ADVICE[verdict.reason]}")


def _publish(settings: Settings, connection: Connection, screen: Screen) -> None:
    reach.publish(settings, connection)
    if workers.alive(connection, Queue.MOVES) == 0:
        screen.warn("No worker listens on queue moves: nothing moves until one starts")
        screen.warn(f"  {START_WORKER}")


def _end(selection: Selection, before: dict[str, Figures | None], connection: Connection, screen: Screen) -> None:
    if selection.to_wait_for:
        parked = wait_for(connection, selection.to_wait_for, screen)
        if selection.by_name:
            show_canary(connection, before, screen)
        if parked:
            raise typer.Exit(LEFT)
    elif not selection.waits:
        screen.line("Next: reroot status --watch")
    if selection.refused:
        raise typer.Exit(LEFT)
