"""Tables that a soak stumbles over: what is only odd moves, what only we cannot read waits for a word, damage stays."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.tables import make_table
from worker.controlplane import operations
from worker.controlplane.connection import connect
from worker.lakehouse.locations import local_path
from worker.lakehouse.port import SoakError, SoakFault
from worker.moves.ports import Strategy
from worker.outcome import Done, Park, ParkCode, Retry

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tests.support.catalog_double import Call
    from tests.support.stage import Stage, Subject


@pytest.fixture(params=[None, Strategy.RENAME], ids=["register", "rename"])
def either(stage: Stage, request: pytest.FixtureRequest) -> Stage:
    """A stage for each way to move."""
    stage.policy = replace(stage.policy, strategy=request.param)
    stage.mover = stage.new_mover()
    return stage


def unreadable(stage: Stage, fault: SoakFault) -> Subject:
    subject = stage.subject()
    stage.catalog.broken[stage.catalog.names[subject.old]] = fault
    return subject


def accept(stage: Stage, subject: Subject) -> None:
    with connect(stage.url, role="operator") as connection:
        assert len(operations.retry_accepting(connection, [subject.id], ParkCode.SOAK_UNSUPPORTED.value)) == 1


def flips(stage: Stage) -> list[Any]:
    """What the events of the flips say."""
    return [detail for (detail,) in stage.execute("SELECT detail FROM reroot.move_events WHERE event = 'flipped'")]


def test_what_our_reader_cannot_read_parks_at_once_and_names_the_way_on(either: Stage) -> None:
    subject = unreadable(either, SoakFault.UNSUPPORTED)
    outcome = either.attempt(subject)
    assert isinstance(outcome, Park)
    assert outcome.code is ParkCode.SOAK_UNSUPPORTED
    assert f"{subject.old} cannot be read either" in outcome.why
    assert f"reroot retry {subject.id} --accept soak_unsupported" in outcome.remedy
    assert either.row(subject)["attempts"] == 1
    assert either.live(subject) == subject.old
    assert either.pointers(subject) == {subject.old}


def test_an_operators_word_moves_it_and_stands_in_the_ledger_and_the_event(either: Stage) -> None:
    subject = unreadable(either, SoakFault.UNSUPPORTED)
    either.attempt(subject)
    accept(either, subject)
    assert either.finish(subject) == "done"
    assert either.live(subject) == subject.new
    assert either.row(subject)["accepted"] == ["soak_unsupported"]
    assert [detail["warnings"] for detail in flips(either)] == [["accepted by an operator"]]


def test_the_word_is_about_this_dataset_and_never_about_damage(either: Stage) -> None:
    subject, other = unreadable(either, SoakFault.UNSUPPORTED), unreadable(either, SoakFault.UNSUPPORTED)
    either.attempt(subject)
    accept(either, subject)
    either.catalog.broken[either.catalog.names[subject.old]] = SoakFault.DAMAGED
    assert either.finish(subject) == "parked"
    assert either.parked(subject) == ParkCode.SOAK_FAILED
    assert either.live(subject) == subject.old
    either.attempt(other)
    assert either.parked(other) == ParkCode.SOAK_UNSUPPORTED


def test_a_place_that_reads_worse_than_the_old_name_is_told_as_such(stage: Stage) -> None:
    subject = stage.subject()

    def refuse_the_new_name(call: Call) -> None:
        table: Any = call.arguments[0]
        if call.method == "soak" and table.identifier == subject.new:
            raise SoakError(SoakFault.REFUSED, "403")

    stage.catalog.before = refuse_the_new_name
    outcome = stage.attempt(subject)
    assert isinstance(outcome, Retry)
    assert f"{subject.old} can be read" in outcome.why


def held(stage: Stage, folder: Path) -> tuple[Subject, Table]:
    """A dataset whose table is a real one, on disk."""
    subject = stage.subject()
    catalog = SqlCatalog("w", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    table = make_table(catalog, subject.old, rows=10)
    catalog.close()
    stage.catalog.hold(subject.old, table.metadata_location)
    return subject, table


def on_disk(location: str) -> Path:
    return Path(local_path(location) or "")


@pytest.mark.parametrize("total", ["7", "lots", None])
def test_a_wrong_or_absent_total_of_rows_is_a_warning_at_most(stage: Stage, tmp_path: Path, total: str | None) -> None:
    subject, table = held(stage, tmp_path)
    file = on_disk(table.metadata_location)
    document = json.loads(file.read_bytes())
    document["snapshots"][-1]["summary"]["total-records"] = total
    file.write_text(json.dumps(document), encoding="utf-8")
    assert stage.attempt(subject) == Done("flipped")
    said = ["the snapshot's summary says 7 rows, its manifest list 10"] if total == "7" else None
    assert [detail.get("warnings") for detail in flips(stage)] == [said]


def test_what_no_reader_of_ours_foresaw_costs_attempts_with_pauses_and_keeps_its_name(
    stage: Stage, tmp_path: Path
) -> None:
    subject, table = held(stage, tmp_path)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    file = on_disk(snapshot.manifest_list)
    reader: Any = fastavro.reader(io.BytesIO(file.read_bytes()))
    schema, records = reader.writer_schema, list(reader)
    schema["fields"] = [field for field in schema["fields"] if field["name"] == "manifest_path"]
    schema["fields"][0]["type"] = {"type": "map", "values": "string"}
    out = io.BytesIO()
    fastavro.writer(out, schema | {"fields": [*schema["fields"], *_counted()]}, [{**records[0], "manifest_path": {}}])
    file.write_bytes(out.getvalue())
    pauses = []
    for _ in range(10):
        outcome = stage.attempt(subject)
        if isinstance(outcome, Retry):
            pauses.append(outcome.after)
        stage.pass_time(subject)
    assert stage.parked(subject) == ParkCode.SOAK_FAILED
    assert pauses == sorted(pauses)
    assert sum(pauses) > 600
    assert "the manifest {} cannot be read: TypeError: unhashable type" in stage.row(subject)["park_text"]
    assert "cannot be read either (10 attempts)" in stage.row(subject)["park_text"]


def _counted() -> list[dict[str, Any]]:
    return [{"name": "manifest_length", "type": "long", "field-id": 501}]
