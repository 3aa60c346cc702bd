"""Attempts that run side by side, one port call at a time, in an order that the test chooses.

Each attempt has a thread of its own, but only one of all runs at any time: a baton goes to the attempt that is told
to step, and comes back when it is about to make its next call, or has ended.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tests.support.faults import Fault, PortCall
from tests.support.twin_stage import Process, TwinStage, struck

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0


class SteppedAttempt:
    """One attempt of a process, stopped before its next call. ``pending`` None: it has ended."""

    def __init__(self, stage: TwinStage, process: Process) -> None:
        self.process = process
        self.pending: PortCall | None = None
        self._stage = stage
        self._fault: Fault | None = None
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._failure: BaseException | None = None
        process.strike = self._pause
        self._thread = threading.Thread(target=self._run, name=process.name, daemon=True)
        self._thread.start()
        self._wait()

    def step(self, fault: Fault | None = None) -> None:
        """Make the pending call, or let a fault strike it, and go on to the next."""
        self.pending, self._fault = None, fault
        self._go.release()
        self._wait()

    def kill(self) -> None:
        """End the process before its pending call, wherever it is."""
        while self.pending is not None:
            self.step(Fault.CRASH_BEFORE)

    def _pause(self, process: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        """Called by the attempt: stop here until it is told to go on."""
        stage = process.at or self._stage
        self.pending = call
        self._stopped.release()
        self._go.acquire()
        if self._fault is None:
            return stage.faults.plainly(call, perform)
        return struck(stage, process, call, perform, self._fault)

    def _run(self) -> None:
        try:
            self._stage.attempt(self.process)
        except BaseException as error:  # noqa: BLE001 - it is raised in the test's own thread
            self._failure = error
        finally:
            self.pending = None
            self._stopped.release()

    def _wait(self) -> None:
        if not self._stopped.acquire(timeout=PATIENCE):
            raise AssertionError(f"{self.process.name} neither stops nor ends")
        if self.pending is None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure
