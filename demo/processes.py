"""Child processes that never outlive the one who started them.

Responsible for: starting a process in a session of its own (so that Ctrl-C reaches its owner alone, who then decides
the order), its log file, its bounded end, and its end when the owner is killed without a chance to clean up.
Must not know: which program runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

POLL: Final = 0.02
"""Seconds between two looks at a condition that is waited for."""

# A shell of 1 MB that reads from its owner's pipe. A word means "it has ended, go home"; the end of the pipe means that
# the owner is gone, however it went (kill -9 too). PR_SET_PDEATHSIG is no help: it fires when a *thread* ends.
_GUARD: Final = """
read -r pid || exit 0
case "$pid" in '' | *[!0-9]*) exit 0 ;; esac
if read -r word; then exit 0; fi
kill -s "$0" "$pid" 2>/dev/null
rounds=0
while kill -0 "$pid" 2>/dev/null && [ "$rounds" -lt 100 ]; do rounds=$((rounds + 1)); sleep 0.1; done
kill -s KILL -- "-$pid" 2>/dev/null
kill -s KILL "$pid" 2>/dev/null
if [ -n "$1" ]; then rm -rf -- "$1"; fi
exit 0
"""


_INTERRUPTIONS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What a person or a supervisor sends to end a program; Python turns it into an exception at whatever line it is."""


class ServiceError(Exception):
    """A service did not start, or a condition was not met in time. The text is for a person."""


@dataclass(frozen=True, slots=True)
class Account:
    """The account that a process runs under, where it is not the owner's own."""

    uid: int
    gid: int


def wait_until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait for a condition, at most ``seconds``. Raises ServiceError, which says ``what`` was waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ServiceError(f"{what}: not within {seconds:g} s")
        time.sleep(POLL)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back what would interrupt this process, until the end of the block.

    A process that was started and not yet noted down would otherwise be forgotten, and outlive everybody.
    """
    # Only the main thread is ever interrupted, and only it may say how.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    held = [number for number in _INTERRUPTIONS if callable(signal.getsignal(number))]
    with _blocked(held):
        before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in held}
    try:
        yield
    finally:
        with _blocked(held):
            for number, handler in before.items():
                signal.signal(number, handler)
    if came:
        signal.raise_signal(signal.Signals(came[0]))


@contextmanager
def _blocked(numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Let the kernel keep signals while their handlers are exchanged. A child would inherit this: start none here."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Process:
    """One running child process and its guard."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        environment: Mapping[str, str],
        stop_signal: signal.Signals = signal.SIGTERM,
        account: Account | None = None,
        folder: Path = Path("/"),
        remove: Path | None = None,
    ) -> None:
        """``remove``: a temporary folder of the process, which the guard removes when the owner is gone."""
        self.log = log
        self._stop_signal = stop_signal
        with ExitStack() as undo:
            with uninterrupted():
                self._guard = self._start_guard(remove)
                undo.callback(self._dismiss_guard)
                self._process = self._spawn(command, environment, account, folder)
                undo.callback(self.kill)
                self._tell_guard(f"{self._process.pid}\n")
            undo.pop_all()

    def _start_guard(self, remove: Path | None) -> subprocess.Popen[bytes]:
        name = self._stop_signal.name.removeprefix("SIG")
        return subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, name, *([str(remove)] if remove else [])],
            stdin=subprocess.PIPE,
            bufsize=0,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def _spawn(
        self, command: Sequence[str | Path], environment: Mapping[str, str], account: Account | None, folder: Path
    ) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as sink:
            return subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
                umask=0o077,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )

    @property
    def pid(self) -> int:
        """The child's process id, which is its process group's id as well."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Its exit code, None while it runs, negative for the signal that ended it."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process itself; nothing happens when it has ended."""
        self._process.send_signal(number)

    def stop(self, *, with_signal: signal.Signals | None = None, seconds: float = 20) -> int:
        """Ask it to end, and kill its whole group when it has not after ``seconds``. Returns the exit code."""
        self.send(with_signal or self._stop_signal)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._kill_group()
        return self._gone()

    def kill(self) -> int:
        """Kill -9, its whole process group at once."""
        self._kill_group()
        return self._gone()

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _kill_group(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            self._process.kill()

    def _gone(self) -> int:
        code = self._process.wait()
        self._dismiss_guard()
        return code

    def _tell_guard(self, word: str) -> None:
        pipe = self._guard.stdin
        if pipe is not None and not pipe.closed:
            # A guard that was killed by hand watches nothing, and is told nothing.
            with contextlib.suppress(BrokenPipeError):
                pipe.write(word.encode())

    def _dismiss_guard(self) -> None:
        self._tell_guard("ended\n")
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()
