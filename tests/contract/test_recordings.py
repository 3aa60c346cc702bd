"""The double answers as the real servers did: their recordings, asked again step by step."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.contract.summary import RECORDINGS
from tests.support.rest_double import TEMPERAMENTS
from tests.support.rest_double.replay import Replay

FOLDER: Final = Path(__file__).parents[1] / "data" / "recorded"
EXPLAINED: Final[dict[str, Any]] = json.loads((FOLDER / "explanations.json").read_text())

GRAVITINO_1_2: Final = TEMPERAMENTS["gravitino-1.2-authorization"]
GRAVITINO_1_2_OFF: Final = TEMPERAMENTS["gravitino-1.2"]
GRAVITINO_1_3: Final = TEMPERAMENTS["gravitino-1.3"]
TEMPERAMENT_OF: Final = {
    "lakekeeper-0.13.3": TEMPERAMENTS["lakekeeper-0.13.3"],
    "lakekeeper-main": TEMPERAMENTS["lakekeeper-main"],
    "gravitino-1.2.0-authorization-on": replace(GRAVITINO_1_2, stage_creates=False),
    "gravitino-1.2.1-authorization-on": GRAVITINO_1_2,
    "gravitino-1.2.1-authorization-off": GRAVITINO_1_2_OFF,
    "gravitino-1.2.1-standalone": GRAVITINO_1_2_OFF,
    "gravitino-1.3.0-authorization-on": GRAVITINO_1_3,
    "gravitino-1.3.0-authorization-off": replace(GRAVITINO_1_3, authorization_failed=False, minds_disabled=False),
}


def lines_of(recording: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{recording}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("recording", TEMPERAMENT_OF)
def test_answers_are_alike_or_explained(recording: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    lines = lines_of(recording)
    replay = Replay(TEMPERAMENT_OF[recording], tmp_path)
    replay.run(lines)
    assert not replay.double.failures
    found = {lines[number - 1]["step"]: what for number, what in replay.different.items()}
    assert {step: what for step, what in found.items() if step not in EXPLAINED["different"]} == {}
    counts = {"same": replay.same, "different": sorted(found), "left_out": dict(sorted(replay.left_out.items()))}
    assert counts == EXPLAINED["counts"][recording]
    pytestconfig.stash.setdefault(RECORDINGS, []).append(
        f"{recording}: {replay.same} answered alike, {len(found)} explained, {replay.left_out.total()} left out"
    )


def test_every_recording_is_asked() -> None:
    assert {path.stem for path in FOLDER.glob("*.jsonl")} == set(TEMPERAMENT_OF) == set(EXPLAINED["counts"])


def test_every_explanation_is_needed() -> None:
    counts = EXPLAINED["counts"].values()
    assert {key for count in counts for key in count["left_out"]} == set(EXPLAINED["left_out"])
    assert {step for count in counts for step in count["different"]} == set(EXPLAINED["different"])


@pytest.mark.parametrize(
    "change",
    [
        {"status": 418},
        {"answer": {"error": {"message": "m", "type": "OtherException", "code": 404}}},
        {"content_type": "text/html"},
    ],
)
def test_a_different_answer_is_seen(change: dict[str, Any], tmp_path: Path) -> None:
    replay = Replay(TEMPERAMENTS["gravitino-1.3"], tmp_path)
    warehouse = {"step": "0", "effect": "warehouse", "name": "w", "id": "w", "root": "file:///warehouse"}
    missing = {
        "step": "1",
        "method": "GET",
        "path": "/iceberg/v1/w/namespaces/a/tables/t",
        "user": "admin",
        "status": 404,
        "content_type": "application/json",
        "answer": {"error": {"message": "m", "type": "NoSuchTableException", "code": 404}},
    }
    replay.run([warehouse, missing, {**missing, **change}])
    assert (replay.same, list(replay.different)) == (1, [3])


@pytest.mark.parametrize(
    "namespaces",
    [
        {"namespaces": [["a"], ["b"]], "next-page-token": None},
        {"namespaces": [["a"]]},
        {"namespaces": [["a"]], "next-page-token": "1"},
    ],
)
def test_a_different_listing_is_seen(namespaces: dict[str, Any], tmp_path: Path) -> None:
    replay = Replay(TEMPERAMENTS["gravitino-1.3"], tmp_path)
    warehouse = {"step": "0", "effect": "warehouse", "name": "w", "id": "w", "root": "file:///warehouse"}
    where = {"path": "/iceberg/v1/w/namespaces", "user": "admin", "status": 200, "content_type": "application/json"}
    made = {
        **where,
        "step": "1",
        "method": "POST",
        "body": {"namespace": ["a"]},
        "answer": {"namespace": ["a"], "properties": {"owner": "admin", "location": "file:///warehouse/a"}},
    }
    listed = {**where, "step": "2", "method": "GET", "answer": {"namespaces": [["a"]], "next-page-token": None}}
    replay.run([warehouse, made, listed, {**listed, "answer": namespaces}])
    assert (replay.same, list(replay.different)) == (2, [4])
