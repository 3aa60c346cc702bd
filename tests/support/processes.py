"""Processes as the kernel sees them: who descends from whom, and who is gone.

Responsible for: proving that nothing is left running.
Must not know: which programs they are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Known:
    """One process; its start time keeps it apart from a later one with the same id."""

    pid: int
    started: int
    command: str


def descendants(pid: int) -> set[Known]:
    """Everything that ``pid`` has started, and what those have started, as it runs now."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _fields(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: set[Known] = set()
    waiting = list(children.get(pid, []))
    while waiting:
        child = waiting.pop()
        waiting += children.get(child, [])
        if fields := _fields(child):
            found.add(Known(child, int(fields[19]), _words(child, "cmdline")))
    return found


def still_running(processes: set[Known]) -> set[Known]:
    """Those that are alive; a zombie that nobody has reaped is not."""
    alive = set()
    for process in processes:
        fields = _fields(process.pid)
        if fields and int(fields[19]) == process.started and fields[0] not in {"Z", "X"}:
            alive.add(process)
    return alive


def running_in(folder: Path) -> set[Known]:
    """Every process whose command or environment names ``folder``, or that stands in it."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        pid = int(entry.name)
        fields = _fields(pid)
        named = str(folder) in _words(pid, "cmdline") or str(folder) in _words(pid, "environ")
        if fields and fields[0] not in {"Z", "X"} and (named or _stands_in(pid, folder)):
            found.add(Known(pid, int(fields[19]), _words(pid, "cmdline")))
    return found


def _fields(pid: int) -> list[str] | None:
    """``/proc/PID/stat`` from the state on (the command before it may hold anything); None where it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _words(pid: int, what: str) -> str:
    """What a process was started with: its ``cmdline`` or its ``environ``; empty where it has ended."""
    try:
        words = Path(f"/proc/{pid}/{what}").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode(errors="replace").strip()


def _stands_in(pid: int, folder: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink().is_relative_to(folder)
    except OSError:
        return False
