"""The tasks, and the one place where an outcome becomes something that Celery shows.

Responsible for: task bodies of a few lines, what a worker does when it and its processes start and end.
Must not know: how a job is done.

A task never sends itself again: what comes next stands in the ledger, and the sweeper publishes it. So every end
acknowledges its message, and RETRY and FAILURE are what people see in Flower, nothing more.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from billiard.common import terminate_handler_fired
from billiard.exceptions import SoftTimeLimitExceeded
from celery import signals
from celery.exceptions import Retry as ShownAsRetry

from worker.app import app
from worker.companion import Companion
from worker.controlplane.connection import ControlPlaneError
from worker.controlplane.schema import NotMigratedError
from worker.messages import MOVE_TASK
from worker.outcome import Busy, Done, Ignored, Outcome, Park, Retry, Wait
from worker.settings import SettingsError, load_settings
from worker.settings_check import masked_url
from worker.telemetry import bind, configure, log, unbind_all
from worker.wiring import runtimes

if TYPE_CHECKING:
    from collections.abc import Iterator

KEEP_SECONDS: Final = 10.0
"""How often the worker looks whether its sweeper still runs."""


class Parked(Exception):  # noqa: N818 - what Flower shows: the job is parked
    """The job needs a person: its code and the reason."""


class JobFailed(Exception):  # noqa: N818 - what Flower shows: the job failed
    """The job ran into something that must not reach the worker's main process."""


class Later(Exception):  # noqa: N818 - what Flower shows: the job comes again later
    """The job comes again: in how many seconds, and why."""


@app.task(name=MOVE_TASK, throws=(Parked, JobFailed))  # type: ignore[untyped-decorator]  # Celery has no types
def move(dataset_id: str) -> str:
    """One attempt at a dataset's move, or at its retirement when it is flipped."""
    with job(dataset_id=dataset_id):
        return shown(runtimes.get().move(dataset_id))


@contextmanager
def job(**names: str) -> Iterator[None]:
    """Keep what a job may throw away from the worker, and its names on every line until Celery is done with it."""
    bind(**names)
    try:
        yield
    except SoftTimeLimitExceeded:
        # Nothing is written: the attempt counts as dead, and the sweeper sends the job again.
        log.warning("the soft time limit was reached")
        runtimes.discard()
        raise later(0, "the soft time limit was reached") from None
    except ControlPlaneError as error:
        log.warning("the control plane failed the job", reason=str(error))
        raise later(0, str(error)) from None
    except (MemoryError, SystemExit) as error:
        if terminate_handler_fired():
            raise  # this process is being ended: the message must go back, not be acknowledged
        # Either would take the whole worker with it, and its message would do so again to the next one.
        log.exception("the job failed")
        runtimes.discard()
        raise JobFailed(masked_url(repr(error))) from None


def shown(outcome: Outcome) -> str:
    """What Celery is told: a value, RETRY or FAILURE. None of them leaves a message behind."""
    match outcome:
        case Done(state):
            return state
        case Ignored(why):
            return f"ignored: {why}"
        case Busy(after, why) | Wait(after, why) | Retry(after, why):
            raise later(after, f"{type(outcome).__name__.lower()}: {why}")
        case Park(code, why):
            raise Parked(masked_url(f"{code.value}: {why}"))


def later(after: float, why: str) -> ShownAsRetry:
    """Raised bare, it shows as RETRY and acknowledges; nothing is sent."""
    text = masked_url(why)
    return ShownAsRetry(text, exc=Later(text), when=after)


@signals.setup_logging.connect  # type: ignore[untyped-decorator]
def _log_our_way(**_: Any) -> None:
    configure(load_settings())


@signals.task_postrun.connect  # type: ignore[untyped-decorator]
def _forget_the_names(**_: Any) -> None:
    unbind_all()


@signals.celeryd_after_setup.connect  # type: ignore[untyped-decorator]
def _begin(sender: str, **_: Any) -> None:
    """Before the processes are forked. What would fail every job, settings or a schema, ends the worker here."""
    runtimes.worker = sender
    runtimes.parent = os.getpid()
    try:
        runtimes.prepare()
    except (SettingsError, NotMigratedError) as error:
        sys.exit(str(error))


@signals.worker_process_init.connect  # type: ignore[untyped-decorator]
def _warm_up(**_: Any) -> None:
    if runtimes.parent not in {os.getpid(), os.getppid()}:
        # The worker died before this process had asked the kernel to die with it. It would wait for a job for ever: its
        # siblings hold the other end of its pipe as well.
        sys.exit("the worker is gone")
    runtimes.get().warm_up()


_companions: Final[list[Companion]] = []


@signals.worker_ready.connect  # type: ignore[untyped-decorator]
def _start_sweeping(sender: Any, **_: Any) -> None:
    companion = Companion(sender.hostname, sorted(sender.app.amqp.queues.consume_from), sender.controller.concurrency)
    _companions.append(companion)
    companion.keep()
    sender.timer.call_repeatedly(KEEP_SECONDS, companion.keep)


@signals.worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _stop_sweeping(**_: Any) -> None:
    for companion in _companions:
        companion.leave()


@signals.worker_shutdown.connect  # type: ignore[untyped-decorator]
def _end_sweeping(**_: Any) -> None:
    for companion in _companions:
        companion.end()
