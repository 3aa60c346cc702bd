"""A plan's three forms, from verdicts that are given."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from producer.caution import Caution
from producer.plan import Excluded, Planned, Reason
from producer.plan_output import COLUMNS, PLACES, write_csv, write_json, write_text
from producer.screen import Screen
from producer.survey import Survey
from worker.identifiers import TableIdentifier

if TYPE_CHECKING:
    from producer.plan import Judged


def planned(number: int, *, schema: str = "europe") -> Planned:
    name = f"ds_{number:032x}"
    return Planned(
        dataset_id=f"00000000-0000-4000-8000-{number:012d}",
        workspace_id="w1",
        source=TableIdentifier(("datasets",), name),
        target=TableIdentifier(("sales", schema), name),
        catalog_slug="sales",
        schema_slug=schema,
        log_rows=2,
        claim=None,
    )


VERDICTS: list[Judged] = [
    planned(1),
    Excluded("d2", Reason.NO_SCHEMA, "", 1),
    Excluded("d3", Reason.PARKED, 'a, "b"', 0),
]


def test_json_is_one_document_with_every_dataset() -> None:
    stream = io.StringIO()
    write_json(iter(VERDICTS), stream)
    assert json.loads(stream.getvalue()) == {
        "datasets": [
            {
                "dataset_id": "00000000-0000-4000-8000-000000000001",
                "workspace_id": "w1",
                "source": "datasets.ds_00000000000000000000000000000001",
                "target": "sales.europe.ds_00000000000000000000000000000001",
                "log_rows": 2,
                "warnings": [],
            },
            {"dataset_id": "d2", "reason": "no_schema", "detail": "", "log_rows": 1},
            {"dataset_id": "d3", "reason": "parked", "detail": 'a, "b"', "log_rows": 0},
        ],
        "planned": 1,
        "log_rows": 2,
        "excluded": {"no_schema": 1, "parked": 1},
        "warnings": {},
    }


def test_json_of_nothing_is_a_document_too() -> None:
    stream = io.StringIO()
    write_json(iter(()), stream)
    assert json.loads(stream.getvalue()) == {
        "datasets": [],
        "planned": 0,
        "log_rows": 0,
        "excluded": {},
        "warnings": {},
    }


WARNED = [
    replace(planned(1), cautions=(Caution.METADATA_CLEANUP, Caution.CASE_TWIN)),
    *(replace(planned(number), cautions=(Caution.CASE_TWIN,)) for number in range(2, 6)),
]


def test_warnings_are_in_json_by_dataset_and_counted() -> None:
    stream = io.StringIO()
    write_json(iter(WARNED), stream)
    document = json.loads(stream.getvalue())
    assert document["datasets"][0]["warnings"] == ["metadata_cleanup", "case_twin"]
    assert document["warnings"] == {"metadata_cleanup": 1, "case_twin": 5}


def test_warnings_are_in_csv_parted_by_blanks() -> None:
    stream = io.StringIO()
    write_csv(iter([*WARNED[:1], *VERDICTS]), stream)
    lines = list(csv.DictReader(io.StringIO(stream.getvalue())))
    assert [line["warnings"] for line in lines] == ["metadata_cleanup case_twin", "", "", ""]


def test_csv_has_one_line_per_dataset() -> None:
    stream = io.StringIO()
    write_csv(iter(VERDICTS), stream)
    lines = list(csv.DictReader(io.StringIO(stream.getvalue())))
    assert tuple(lines[0]) == COLUMNS
    assert [line["reason"] for line in lines] == ["", "no_schema", "parked"]
    assert lines[2]["detail"] == 'a, "b"'
    assert lines[0]["target"] == "sales.europe.ds_00000000000000000000000000000001"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("COLUMNS", "80")
    return Screen()


def test_text_groups_by_place_and_says_what_does_not_move_and_why(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts: list[Judged] = [planned(1), planned(2), planned(3, schema="asia"), *VERDICTS[1:]]
    write_text(iter(verdicts), screen, shown=1)
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "3 datasets can move; the flips will rewrite 6 log rows.",
        "to            datasets  log rows",
        "sales.europe         2         4",
        "sales.asia           1         2",
        "",
        "00000000-0000-4000-8000-000000000001",
        "     datasets.ds_00000000000000000000000000000001",
        "  -> sales.europe.ds_00000000000000000000000000000001",
        "and 2 more (--rows N, --csv, --json)",
        "",
        "2 datasets not planned:",
        "reason     datasets  what to do",
        "no_schema         1  give the dataset a schema, then plan again",
        "parked            1  needs a person: reroot show DATASET says what",
    ]


def test_text_says_what_to_do_about_warnings_and_names_a_few(
    screen: Screen, capsys: pytest.CaptureFixture[str]
) -> None:
    write_text(iter(WARNED), screen, shown=0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:] == [
        "",
        "6 warnings; these datasets can move all the same:",
        "warning           datasets  what to do",
        "case_twin                5  rename one of the two, if the catalog ignores case",
        "metadata_cleanup         1  set a shorter grace, or keep more metadata versions",
        "  case_twin  00000000-0000-4000-8000-000000000001",
        "  case_twin  00000000-0000-4000-8000-000000000002",
        "  case_twin  00000000-0000-4000-8000-000000000003",
        "  metadata_cleanup  00000000-0000-4000-8000-000000000001",
    ]
    assert max(map(len, lines)) <= 80


def test_text_fits_80_columns_whatever_the_reason(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    verdicts: list[Judged] = [Excluded("d", reason, "", 0) for reason in Reason for _ in range(3)]
    write_text(iter(verdicts), screen, shown=5)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == len(Reason) + 4  # none of them is folded


def test_text_names_a_bounded_number_of_places(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    write_text((planned(number, schema=f"s{number}") for number in range(PLACES + 7)), screen, shown=0)
    assert "and 7 more places" in capsys.readouterr().out


def test_a_survey_keeps_a_bounded_number_of_verdicts() -> None:
    survey = Survey(shown=2)
    for _ in survey.over([planned(number) for number in range(100)] + [VERDICTS[1]] * 100):
        pass
    assert (survey.planned, len(survey.first), survey.excluded.total()) == (100, 2, 100)


def test_why_a_selection_is_empty_names_the_most_frequent_reason_first() -> None:
    survey = Survey(shown=0)
    for verdict in [VERDICTS[2], VERDICTS[1], VERDICTS[1]]:
        survey.add(verdict)
    assert survey.why_empty() == "no_schema 2, parked 1"
    assert Survey(shown=0).why_empty() == "no dataset is in scope"
