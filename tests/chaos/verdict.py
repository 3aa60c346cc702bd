"""What must be true when the chaos is over, of what the closing look found and the bystanders told.

Responsible for: every reason for which a run fails, one line each. Pure: values in, lines out.
Must not know: how any of it was found out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from worker.outcome import ParkCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.chaos.closing import End


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit that a writer was told is done, through ``name``; with the digests of the files that it added."""

    dataset_id: str
    name: str
    snapshot_id: int
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that is judged."""

    strategy: str
    ends: Sequence[End]
    commits: Sequence[Commit]
    files_before: Mapping[str, str]
    files_after: Mapping[str, str]
    reads: int
    failed_reads: Sequence[Mapping[str, object]] = ()
    messages_left: int = 0
    advisory_locks: int = 0
    processes_left: Sequence[str] = ()
    complaints: Sequence[str] = field(default_factory=tuple)
    """What went wrong with the run itself."""


def violations(seen: Seen) -> list[str]:
    """Every reason for which the run has failed; none is what is wanted."""
    return [*seen.complaints, *_of_datasets(seen), *_of_commits(seen), *_of_files(seen), *_of_the_rest(seen)]


def missing_commits(seen: Seen) -> list[Commit]:
    """Acknowledged, and neither in the history that readers find nor kept beside it by a parked dataset."""
    ends = {end.subject.dataset_id: end for end in seen.ends}
    return [commit for commit in seen.commits if not _kept(commit, ends[commit.dataset_id])]


def missing_files(seen: Seen) -> list[str]:
    """Files that were there, or that an acknowledged commit added, and are gone or have other bytes."""
    expected = dict(seen.files_before)
    for commit in seen.commits:
        expected.update(commit.files)
    return sorted(path for path, digest in expected.items() if seen.files_after.get(path) != digest)


def stuck(seen: Seen) -> list[End]:
    """Datasets that have not ended."""
    return [end for end in seen.ends if end.state not in {"done", "parked"} or end.running]


def untrue(end: End) -> str | None:
    """Why a dataset is parked although what its code says is not so; None where it is so."""
    if end.park_code == ParkCode.NAME_HIDDEN and end.live is not None:
        return None  # the proxy did hide the new name: it answers 404 for a while, whatever is true
    if end.park_code != ParkCode.DIVERGED:
        return f"nothing on this stage is a reason for {end.park_code}"
    live = end.live
    others = [name for name in end.names if live is not None and name is not live]
    if live is None or not others:
        return "diverged, but there are no two names"
    known = live.log | {live.metadata_file}
    if all(other.metadata_file in known for other in others):
        return "diverged, but the live name holds everything"
    return None


def _of_datasets(seen: Seen) -> Iterator[str]:
    for end in stuck(seen):
        yield f"{end.subject.dataset_id}: stuck, {end.state} after {end.attempts} attempts"
    for end in seen.ends:
        who = end.subject.dataset_id
        if end.live is None:
            yield f"{who}: the resolver names {end.resolved}, its table is under {_shown(end)}"
        elif end.rows is None or end.rows[0] != end.rows[1]:
            yield f"{who}: {end.rows} rows decoded and promised"
        if end.state == "done":
            yield from (f"{who}: done, but {what}" for what in _not_done(end))
        elif end.state == "parked" and (why := untrue(end)) is not None:
            yield f"{who}: parked for no true reason ({why}): {end.park_text}"


def _not_done(end: End) -> Iterator[str]:
    if [name.identifier for name in end.names] != [end.expected]:
        yield f"its table is under {_shown(end)}"
    if end.resolved != end.expected:
        yield f"the resolver names {end.resolved}"
    if set(end.logged) != {end.expected}:
        yield f"its log names {', '.join(end.logged)}"
    if end.open_entries:
        yield f"{end.open_entries} entries of the journal are open"


def _kept(commit: Commit, end: End) -> bool:
    if end.live is not None and commit.snapshot_id in end.live.snapshots:
        return True
    return end.state == "parked" and any(commit.snapshot_id in name.snapshots for name in end.names)


def _of_commits(seen: Seen) -> Iterator[str]:
    for commit in missing_commits(seen):
        yield f"{commit.dataset_id}: commit {commit.snapshot_id}, acknowledged through {commit.name}, is missing"
    if not seen.commits:
        yield "no writer was ever told that a commit is done: nothing was shown"


def _of_files(seen: Seen) -> Iterator[str]:
    yield from (f"{path}: gone or changed" for path in missing_files(seen))
    if not seen.files_before:
        yield "there were no files before: nothing was shown"


def _of_the_rest(seen: Seen) -> Iterator[str]:
    if seen.strategy == "register":
        for read in seen.failed_reads:
            yield f"{read['dataset']}: a read of {read['name']} failed: {read['problem']}"
    if not seen.reads:
        yield "nobody read anything: nothing was shown"
    if seen.messages_left:
        yield f"{seen.messages_left} messages are left in the broker"
    if seen.advisory_locks:
        yield f"{seen.advisory_locks} advisory locks are left"
    yield from (f"a process of a worker has outlived it: {process}" for process in seen.processes_left)


def _shown(end: End) -> str:
    return ", ".join(name.identifier for name in end.names) or "no name"
