"""What the kernel knows of a process: processor time and memory.

Responsible for: reading ``/proc``. Linux only, as the figures in docs/benchmarks.md are.
Must not know: which process it is.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

_TICK: Final = float(os.sysconf("SC_CLK_TCK"))
_UTIME, _STIME = 11, 12
"""Places in ``/proc/PID/stat`` after the command's name, which may hold anything."""

_MOMENT: Final = 3.0


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, in user and kernel; 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICK


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run now."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]
    except OSError:
        return []


def command_of(pid: int) -> str:
    """A process's command line; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def memory(pid: int, what: str = "VmRSS") -> float:
    """Memory in MB (10⁶ bytes): ``VmRSS`` now, ``VmHWM`` at most so far; 0 for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(what + ":")), 0.0)


def proportional(pid: int) -> float:
    """Memory in MB with shared pages divided among those who share them; 0 for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("Pss:")), 0.0)


def busy_seconds() -> float:
    """Processor time that the whole machine has used since it started, all cores together."""
    words = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = map(int, words[:8])
    return (user + nice + system + irq + softirq + steal) / _TICK


def family_seconds(pid: int) -> float:
    """Processor time of a process and of all that it has started, those that have ended included."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    own = sum(int(word) for word in fields[_UTIME : _STIME + 3]) / _TICK  # the next two are those that have ended
    return own + sum(map(family_seconds, children(pid)))


class Neighbours:
    """What everybody else on this machine uses, in cores, since the last question."""

    def __init__(self) -> None:
        self._last = self._now()

    def cores(self) -> float:
        """The average since the last question."""
        before, self._last = self._last, self._now()
        return max(0.0, (self._last[1] - before[1]) / (self._last[0] - before[0]))

    def wait_for_quiet(self, cores: float, until: float) -> None:
        """Wait until others use less than ``cores`` for a few seconds; no longer than ``until`` (monotonic clock)."""
        while time.monotonic() < until:
            time.sleep(_MOMENT)
            if self.cores() < cores:
                return

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), busy_seconds() - family_seconds(os.getpid())
