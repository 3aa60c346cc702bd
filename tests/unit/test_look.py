"""The decision table, over every combination of what the two looks can see."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.identifiers import TableIdentifier
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind, SoakError, Table
from worker.moves.look import (
    NOT_LOOKED,
    Evidence,
    Gone,
    NotLooked,
    Relation,
    Sighting,
    Step,
    There,
    Unclear,
    decide,
    reaches,
    refuse_difference,
    relation,
)
from worker.moves.ports import Pointer
from worker.outcome import Park, ParkCode

OLD = TableIdentifier(("datasets",), "ds_1")
NEW = TableIdentifier(("sales", "europe"), "ds_1")
DOUBT = CatalogError(ErrorCode.UNCLEAR, ErrorKind.UNKNOWN, "500")


def table(
    identifier: TableIdentifier,
    location: str = "m1",
    *,
    uuid: str = "u",
    log: tuple[str, ...] = (),
    snapshots: tuple[int, ...] = (1,),
    sequence: int = 1,
) -> Table:
    return Table(
        identifier=identifier,
        uuid=uuid,
        metadata_location=location,
        location="file:///t",
        format_version=2,
        sequence_number=sequence,
        snapshot_id=snapshots[-1] if snapshots else None,
        row_count=10,
        metadata_log=frozenset(log),
        snapshot_ids=frozenset(snapshots),
    )


OLD_SIGHTS: dict[str, Sighting] = {
    "at m2": There(table(OLD, "m2", log=("m1",))),
    "another table": There(table(OLD, "x1", uuid="other")),
    "gone": Gone(),
    "unclear": Unclear(DOUBT),
}
NEW_SIGHTS: dict[str, Sighting | NotLooked] = {
    "at m2": There(table(NEW, "m2", log=("m1",))),
    "behind, at m1": There(table(NEW, "m1")),
    "ahead, at m3": There(table(NEW, "m3", log=("m2", "m1"))),
    "forked, at n9": There(table(NEW, "n9", log=("n8",))),
    "another table": There(table(NEW, "x1", uuid="foreign", snapshots=(99,))),
    "gone": Gone(),
    "unclear": Unclear(DOUBT),
    "not looked": NOT_LOOKED,
}
EVIDENCE = {
    "uuid known": Evidence("u", None, frozenset()),
    "only the log's snapshot": Evidence(None, 1, frozenset()),
    "nothing": Evidence(None, None, frozenset()),
}


def expected(old: str, new: str, evidence: str) -> object:
    """The table of the protocol, written down a second time."""
    if "unclear" in {old, new}:
        return DOUBT
    if old == "another table" and evidence == "uuid known":
        return ParkCode.SOURCE_REPLACED
    if old == "gone":
        if new in {"gone", "not looked"}:
            return ParkCode.TABLE_MISSING
        proved = evidence != "nothing" and new != "another table"
        return Step.ADOPT if proved else ParkCode.UNVERIFIED
    if new in {"gone", "not looked"}:
        return Step.MAKE
    if old == "another table":
        return ParkCode.NAME_TAKEN
    return {
        "at m2": Step.GO_ON,
        "behind, at m1": Step.REPLACE,
        "ahead, at m3": Step.GO_ON,
        "forked, at n9": ParkCode.DIVERGED,
        "another table": ParkCode.NAME_TAKEN,
    }[new]


@pytest.mark.parametrize(("old", "new", "evidence"), list(itertools.product(OLD_SIGHTS, NEW_SIGHTS, EVIDENCE)))
def test_every_combination_of_looks_has_its_row(old: str, new: str, evidence: str) -> None:
    step = decide(OLD_SIGHTS[old], NEW_SIGHTS[new], EVIDENCE[evidence])
    assert (step.code if isinstance(step, Park) else step) == expected(old, new, evidence)


def test_a_parked_job_says_what_to_do() -> None:
    for old, new, evidence in itertools.product(OLD_SIGHTS.values(), NEW_SIGHTS.values(), EVIDENCE.values()):
        step = decide(old, new, evidence)
        if isinstance(step, Park):
            assert step.why
            assert step.remedy


class TestRelation:
    def test_the_registered_location_is_an_ancestor_though_every_log_is_empty(self) -> None:
        assert relation(table(NEW, "m1"), table(OLD, "m9"), frozenset({"m1"})) is Relation.BEHIND
        assert relation(table(NEW, "m9"), table(OLD, "m1"), frozenset({"m1"})) is Relation.AHEAD

    def test_two_moved_on_pointers_with_short_logs_are_forked(self) -> None:
        assert relation(table(NEW, "n9"), table(OLD, "m9"), frozenset({"m1"})) is Relation.FORKED

    def test_with_several_open_registrations_only_the_log_says_what_is_ahead(self) -> None:
        assert relation(table(NEW, "n9"), table(OLD, "m2"), frozenset({"m1", "m2"})) is Relation.FORKED
        assert relation(table(NEW, "n9", log=("m2",)), table(OLD, "m2"), frozenset({"m1", "m2"})) is Relation.AHEAD

    def test_logs_that_name_each_other_are_forked(self) -> None:
        assert relation(table(NEW, "a", log=("b",)), table(OLD, "b", log=("a",)), frozenset()) is Relation.FORKED


@dataclass(frozen=True)
class History:
    """A line of commits that forks at one point; each side remembers its last few locations."""

    trunk: int
    left: int
    right: int
    remembered: int

    def at(self, identifier: TableIdentifier, branch: str, length: int) -> Table:
        line = [f"t{n}" for n in range(self.trunk + 1)] + [f"{branch}{n}" for n in range(length)]
        log = line[:-1][max(0, len(line) - 1 - self.remembered) :]
        return table(identifier, line[-1], log=tuple(log))


@given(st.builds(History, *[st.integers(0, 6)] * 3, st.integers(0, 8)))
def test_a_fork_is_never_taken_for_an_ancestor(history: History) -> None:
    """Whatever the logs have forgotten, and whatever was registered at the fork."""
    new = history.at(NEW, "r", history.right)
    old = history.at(OLD, "l", history.left)
    found = relation(new, old, frozenset({f"t{history.trunk}"}))
    if history.left and history.right:
        assert found is Relation.FORKED
    elif history.left:
        assert found is Relation.BEHIND
    elif history.right:
        assert found is Relation.AHEAD
    else:
        assert found is Relation.SAME


class TestReaches:
    POINTER = Pointer(OLD, "u", "m1", 5)

    def test_by_the_log_or_by_standing_at_the_same_place(self) -> None:
        assert reaches(table(NEW, "m1"), self.POINTER, registered=False)
        assert reaches(table(NEW, "m3", log=("m1",)), self.POINTER, registered=False)
        assert not reaches(table(NEW, "m3"), self.POINTER, registered=False)

    def test_by_the_journal_unless_the_keeper_was_set_back(self) -> None:
        assert reaches(table(NEW, "m3", sequence=5), self.POINTER, registered=True)
        assert not reaches(table(NEW, "m3", sequence=4), self.POINTER, registered=True)

    def test_another_table_reaches_nothing(self) -> None:
        assert not reaches(table(NEW, "m1", uuid="other"), self.POINTER, registered=True)


def test_one_metadata_file_must_read_the_same_under_both_names() -> None:
    refuse_difference(table(NEW), table(OLD))
    refuse_difference(table(NEW, "m2", snapshots=(1, 2)), table(OLD, "m1"))
    with pytest.raises(SoakError, match="snapshot_id"):
        refuse_difference(table(NEW, snapshots=(1, 2)), table(OLD))
