"""When a plan warns, and when not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from producer.caution import COMMITS_IN_GRACE, REMEDY, Caution, Terms, cautions
from producer.plan import Planned, judged
from tests.unit.test_plan import MOVABLE
from worker.moves.ports import Strategy

QUARTER = Terms(grace_seconds=900, strategy=None)
DAY = Terms(grace_seconds=86_400, strategy=None)


def warned(terms: Terms, **changes: Any) -> tuple[Caution, ...]:
    return cautions(replace(MOVABLE, **changes), terms)


@pytest.mark.parametrize(
    ("commits", "terms", "expected"),
    [
        (COMMITS_IN_GRACE, DAY, ()),
        (COMMITS_IN_GRACE + 1, DAY, (Caution.METADATA_CLEANUP,)),
        (COMMITS_IN_GRACE * 96, QUARTER, ()),
        (COMMITS_IN_GRACE * 96 + 1, QUARTER, (Caution.METADATA_CLEANUP,)),
        (0, DAY, ()),
    ],
)
def test_the_commits_of_a_day_are_held_against_the_grace(
    commits: int, terms: Terms, expected: tuple[Caution, ...]
) -> None:
    assert warned(terms, commits_last_day=commits) == expected


@pytest.mark.parametrize(
    ("setting", "found", "said", "expected"),
    [
        (None, None, False, True),
        (None, Strategy.REGISTER, False, True),
        (None, Strategy.RENAME, False, False),
        (Strategy.RENAME, None, False, False),
        (Strategy.REGISTER, Strategy.RENAME, False, True),
        (Strategy.REGISTER, Strategy.RENAME, True, False),
        (Strategy.RENAME, Strategy.REGISTER, True, True),
    ],
)
def test_a_renamed_table_leaves_no_pointer_that_could_break(
    setting: Strategy | None, found: Strategy | None, *, said: bool, expected: bool
) -> None:
    found_out = warned(replace(DAY, strategy=setting), commits_last_day=1000, strategy=found, strategy_set=said)
    assert found_out == ((Caution.METADATA_CLEANUP,) if expected else ())


def test_twins_but_for_their_case_are_named_whatever_the_strategy() -> None:
    assert warned(Terms(900, Strategy.RENAME), case_twin=True) == (Caution.CASE_TWIN,)


@pytest.mark.parametrize(("name", "expected"), [("50%", True), ("a\\b", True), ("Größe 1.2", False), ("ds_1", False)])
def test_a_name_that_some_servers_refuse_in_a_path_is_named(name: str, *, expected: bool) -> None:
    found = warned(QUARTER, source_identifier=f"datasets.{name}")
    assert (Caution.NAME_IN_PATH in found) is expected


def test_every_warning_says_what_to_do() -> None:
    assert set(REMEDY) == set(Caution)


def test_warnings_go_with_what_can_move_and_only_where_they_are_asked_for() -> None:
    twins = replace(MOVABLE, case_twin=True)
    [with_terms] = judged([twins], terms=QUARTER)
    [without] = judged([twins])
    assert isinstance(with_terms, Planned)
    assert isinstance(without, Planned)
    assert (with_terms.cautions, without.cautions) == ((Caution.CASE_TWIN,), ())
    assert not isinstance(next(iter(judged([replace(twins, schema_id=None)], terms=QUARTER))), Planned)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("files", True),
        ("all_data_files", True),
        ("snapshots", True),
        ("a.b", True),
        ("x" * 129, True),
        ("x" * 128, False),
        ("ds_1", False),
        ("my_files", False),
    ],
)
def test_a_name_that_some_server_hides_is_warned_about(name: str, expected: bool) -> None:
    assert (Caution.NAME_HIDDEN in warned(QUARTER, source_identifier=f"datasets.{name}")) is expected
