"""Moves in which something happens at a chosen call: the process dies, or somebody interferes.

``Points`` counts every call that an attempt makes through its two ports, and acts at the chosen one, just before the
call takes effect or just after. By default the process kills itself with SIGKILL: no handler runs, no connection says
good-bye.
"""

from __future__ import annotations

import os
import pickle
import signal
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Moment(StrEnum):
    """On which side of a call's effect the process dies."""

    BEFORE = "before"
    AFTER = "after"


@dataclass
class Points:
    """The calls so far, and the one at which ``act`` runs; ``at`` None: never."""

    at: int | None = None
    moment: Moment = Moment.BEFORE
    act: Callable[[], object] = lambda: os.kill(os.getpid(), signal.SIGKILL)
    calls: list[str] = field(default_factory=list)

    def around(self, name: str, call: Callable[[], Any]) -> Any:
        """Make the call, and act there if this is the one."""
        self.calls.append(name)
        chosen = len(self.calls) - 1 == self.at
        if chosen and self.moment is Moment.BEFORE:
            self.act()
        try:
            return call()
        finally:
            if chosen and self.moment is Moment.AFTER:
                self.act()


class Watched:
    """Any port, with every call of its methods going through ``Points``."""

    def __init__(self, target: Any, name: str, points: Points) -> None:
        self._target, self._name, self._points = target, name, points

    def __getattr__(self, method: str) -> Any:
        attribute = getattr(self._target, method)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **keywords: Any) -> Any:
            result = self._points.around(f"{self._name}.{method}", lambda: attribute(*arguments, **keywords))
            if isinstance(result, AbstractContextManager):
                return self._entered(result)
            return Watched(result, "catalog", self._points) if method == "catalog" else result

        return call

    @contextmanager
    def _entered(self, context: AbstractContextManager[Any]) -> Iterator[Any]:
        with context as entered:
            yield None if entered is None else Watched(entered, "lock", self._points)


@dataclass(frozen=True)
class Ended:
    """How a child process ended: its result, or the signal that killed it."""

    result: Any = None
    signal: int = 0


def in_child(work: Callable[[], Any]) -> Ended:
    """Run ``work`` in a forked child and wait for it. What it returns is pickled; what it raises fails the test."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            with os.fdopen(writing, "wb") as pipe:
                try:
                    pickle.dump((True, work()), pipe)
                    status = 0
                except Exception as error:  # noqa: BLE001 - it is raised again in the parent
                    pickle.dump((False, repr(error)), pipe)
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Ended(signal=os.WTERMSIG(status))
    good, result = pickle.loads(told)  # noqa: S301 - from our own child
    assert good, result
    return Ended(result)
