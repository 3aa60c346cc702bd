"""What a person sees while moves are under way, and how leaving is safe.

Responsible for: the progress bar, the summary, Ctrl-C.
Must not know: how moves are ordered.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from producer.ends import LEFT, START_WORKER, CommandError
from producer.screen import age, count
from producer.wait import Progress, wait
from worker.controlplane import history, reporting
from worker.controlplane.facts import Scope
from worker.moves.machine import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from producer.screen import Screen
    from worker.controlplane.connection import Connection
    from worker.controlplane.reporting import Status

STALLED_SECONDS: Final = 10.0
"""After so many seconds without progress the ledger is asked for the reason."""

SHOWN: Final = 5
"""How many parked datasets are listed."""


def wait_for(connection: Connection, dataset_ids: list[str], screen: Screen) -> int:
    """Wait until none is queued any more; how many are parked. Raises CommandError after Ctrl-C, ControlPlaneError."""
    progress = Progress(total=len(dataset_ids))
    stalled = Stalled(lambda: reporting.status(connection, Scope(dataset_ids=tuple(dataset_ids))))
    try:
        with _bar(screen, len(dataset_ids)) as show:
            for progress in wait(
                dataset_ids,
                lambda ids: reporting.settled(connection, ids),
                clock=time.monotonic,
                pause=time.sleep,
            ):
                show(progress)
                stalled.look(progress, screen)
    except KeyboardInterrupt:
        left = progress.total - progress.settled
        raise CommandError(
            f"left with {count(left, 'dataset')} still queued; the workers go on (reroot status --watch)",
            LEFT,
        ) from None
    screen.line(summary(progress))
    _show_parked(connection, progress, screen)
    return len(progress.parked)


class Stalled:
    """Prints why nothing moves when nothing has settled for a while, and again when the reason has changed."""

    def __init__(self, ask: Callable[[], Status]) -> None:
        self._ask = ask
        self._settled = 0
        self._since = 0.0
        self._said = ""

    def look(self, progress: Progress, screen: Screen) -> None:
        """Ask the ledger where nothing has settled for ``STALLED_SECONDS``. Raises ControlPlaneError."""
        if progress.settled > self._settled:
            self._settled, self._since = progress.settled, progress.elapsed
        if progress.settled == progress.total or progress.elapsed - self._since < STALLED_SECONDS:
            return
        self._since = progress.elapsed
        reason = why(self._ask())
        if reason and reason != self._said:
            self._said = reason
            screen.warn(f"waiting: {reason}")


def why(now: Status) -> str:
    """Why nothing moves, the most common cause first; empty where jobs are running."""
    if not now.workers:
        return f"no worker is alive ({START_WORKER})"
    reasons = [f"warehouse {away.warehouse} does not answer: {away.reason}" for away in now.warehouses_away]
    if not reasons:
        reasons = [f"{count(each.datasets, 'dataset')} for {each.waiting_for}" for each in now.waiting]
    if not reasons and now.busy:
        reasons = [f"another program holds the lock or rows of {each.dataset_id}" for each in now.busy]
    return "; ".join(reasons)


def summary(progress: Progress) -> str:
    """The line at the end: ``flipped 12, done 3, parked 1 in 45 s``."""
    parts = [f"{state} {progress.counts[state]:,}" for state in State if progress.counts[state]]
    if progress.cancelled:
        parts.append(f"cancelled {progress.cancelled:,}")
    return f"{', '.join(parts)} in {age(progress.elapsed)}."


def figures(progress: Progress) -> str:
    """Beside the bar: rate, remaining time, parked."""
    rate = f"{progress.rate:.1f}/s" if progress.rate else "-/s"
    remaining = f"{age(progress.remaining)} left" if progress.remaining is not None else "waiting"
    return f"{rate}  {remaining}  {len(progress.parked)} parked"


@contextmanager
def _bar(screen: Screen, total: int) -> Iterator[Callable[[Progress], None]]:
    """A progress bar where a person watches; silence where nobody does."""
    if not screen.terminal:
        yield lambda _: None
        return
    columns = (BarColumn(bar_width=24), TextColumn("{task.completed:,}/{task.total:,}  {task.fields[figures]}"))
    with Bar(*columns, console=screen.err, transient=True) as bar:
        task = bar.add_task("moving", total=total, figures="waiting")
        yield lambda progress: bar.update(task, completed=progress.settled, figures=figures(progress))


def _show_parked(connection: Connection, progress: Progress, screen: Screen) -> None:
    for dataset_id in progress.parked[:SHOWN]:
        row = history.ledger_row(connection, dataset_id)
        if row is not None:
            screen.line(f"  {dataset_id}  {row.park_code}: {row.park_text}")
    if len(progress.parked) > SHOWN:
        screen.line(f"  and {len(progress.parked) - SHOWN:,} more parked: reroot status")
