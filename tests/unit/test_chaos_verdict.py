"""The verdict of a chaos run sees each thing that must not be, and nothing in a run without fault."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.closing import End, Name
from tests.chaos.stage import Subject
from tests.chaos.verdict import Commit, Seen, missing_commits, missing_files, stuck, violations

if TYPE_CHECKING:
    from collections.abc import Callable

SUBJECT = Subject("d1", "u1", "datasets.t", "sales.europe.t")
NEW = Name(SUBJECT.new, "/t/3.json", (3, 2, 1), frozenset({"/t/1.json", "/t/2.json"}))
OLD = Name(SUBJECT.old, "/t/2.json", (2, 1), frozenset({"/t/1.json"}))
FORKED = Name(SUBJECT.old, "/t/2b.json", (4, 2, 1), frozenset({"/t/1.json", "/t/2.json"}))
DONE = End(
    SUBJECT, "done", direction="out", park_code=None, park_text=None, attempts=0, running=False, resolved=SUBJECT.new,
    logged=(SUBJECT.new,), open_entries=0, names=(NEW,), rows=(9, 9),
)  # fmt: skip
PARKED = replace(DONE, state="parked", park_code="diverged", park_text="…", names=(FORKED, NEW))
COMMITS = (Commit("d1", SUBJECT.old, 2, {"/t/2.json": "b"}), Commit("d1", SUBJECT.new, 3, {"/t/3.json": "c"}))
FILES = {"/t/1.json": "a"}
GOOD = Seen("register", (DONE,), COMMITS, FILES, FILES | {"/t/2.json": "b", "/t/3.json": "c"}, reads=7)


def with_end(**changes: Any) -> Seen:
    return replace(GOOD, ends=(replace(DONE, **changes),))


def parked(**changes: Any) -> Seen:
    return replace(GOOD, ends=(replace(PARKED, **changes),))


def test_a_run_without_fault_has_no_violation() -> None:
    assert violations(GOOD) == []


def test_a_divergence_that_is_one_is_a_true_reason() -> None:
    assert violations(parked()) == []


def test_a_commit_that_a_parked_dataset_keeps_under_the_other_name_is_not_missing() -> None:
    kept = replace(parked(), commits=(Commit("d1", SUBJECT.old, 4, {}),))
    assert missing_commits(kept) == []
    assert missing_commits(replace(kept, ends=(replace(DONE, names=(FORKED, NEW)),))) == list(kept.commits)


DEFECTS: dict[str, tuple[Callable[[], Seen], str]] = {
    "a move that goes on for ever": (lambda: with_end(state="flipped"), "stuck"),
    "an attempt that never ended": (lambda: with_end(running=True), "stuck"),
    "a dataset that the ledger lost": (lambda: with_end(state=None), "stuck"),
    "a name that holds nothing": (lambda: with_end(names=(OLD,)), "the resolver names"),
    "rows that cannot be read": (lambda: with_end(rows=(8, 9)), "decoded and promised"),
    "a pointer that was left": (lambda: with_end(names=(OLD, NEW)), "its table is under datasets.t, sales.europe.t"),
    "a move that never moved": (lambda: with_end(resolved=SUBJECT.old, names=(OLD,)), "the resolver names datasets.t"),
    "a log row under the old name": (lambda: with_end(logged=(SUBJECT.old, SUBJECT.new)), "its log names"),
    "an open journal": (lambda: with_end(open_entries=1), "journal"),
    "a lost commit": (lambda: with_end(names=(replace(NEW, snapshots=(3, 1)),)), "commit 2, acknowledged"),
    "a lost file": (lambda: replace(GOOD, files_after={**GOOD.files_after, "/t/1.json": "z"}), "gone or changed"),
    "a lost file of a commit": (lambda: replace(GOOD, files_after=FILES), "/t/3.json: gone or changed"),
    "a failed read": (
        lambda: replace(GOOD, failed_reads=[{"dataset": "d1", "name": "n", "problem": "404"}]),
        "a read of n failed: 404",
    ),
    "messages": (lambda: replace(GOOD, messages_left=1), "1 messages are left"),
    "locks": (lambda: replace(GOOD, advisory_locks=2), "2 advisory locks"),
    "processes": (lambda: replace(GOOD, processes_left=["17 celery"]), "outlived it: 17 celery"),
    "parked by a fault that has passed": (lambda: parked(park_code="refused"), "no true reason"),
    "parked as diverged with one name": (lambda: parked(names=(NEW,)), "there are no two names"),
    "parked as diverged though all is there": (lambda: parked(names=(OLD, NEW)), "the live name holds everything"),
    "nobody wrote": (lambda: replace(GOOD, commits=()), "nothing was shown"),
    "nobody read": (lambda: replace(GOOD, reads=0), "nothing was shown"),
    "there was nothing": (lambda: replace(GOOD, files_before={}), "nothing was shown"),
    "the run broke": (lambda: replace(GOOD, complaints=["it did not end"]), "it did not end"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_defect_is_seen(defect: str) -> None:
    make, words = DEFECTS[defect]
    assert any(words in violation for violation in violations(make())), violations(make())


def test_by_rename_a_reader_may_miss() -> None:
    missed = replace(GOOD, strategy="rename", failed_reads=[{"dataset": "d1", "name": "n", "problem": "404"}])
    assert violations(missed) == []


def test_the_figures_agree_with_the_violations() -> None:
    assert stuck(with_end(state="queued")) != []
    assert missing_files(replace(GOOD, files_after={})) == ["/t/1.json", "/t/2.json", "/t/3.json"]
