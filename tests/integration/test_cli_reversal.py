"""What an operator takes back or decides: revert and resolve.

Real tables in a SqlCatalog, written by pyiceberg; a worker's own runtime carries out what the commands order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis

from producer import cli_resolve
from tests.support import tables
from tests.support.controlplane import legacy_identifier
from tests.support.lake import Lake
from tests.support.operator import NOWHERE
from worker.identifiers import LEGACY_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.controlplane import ControlPlaneFixture

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def lake(database: str, valkey: str, control_plane: ControlPlaneFixture, tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(database, valkey, control_plane, tmp_path)
    yield lake
    lake.close()


# --- revert


@pytest.mark.parametrize("state", ["flipped", "done"])
def test_revert_orders_the_way_back_and_a_worker_goes_it(lake: Lake, valkey: str, state: str) -> None:
    dataset = lake.moved(lake.dataset(), state)
    files = tables.files_under(lake.warehouse)
    with redis.Redis.from_url(valkey) as broker:
        broker.flushdb()
    ended = lake.operator.types("revert", dataset)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == ["1 dataset turned back.", "Next: reroot status --watch"]
    assert lake.row(dataset, "state, direction") == ("queued", "back")
    with redis.Redis.from_url(valkey) as broker:
        assert broker.llen("moves") == 1
    assert lake.work(dataset, 2) == "done"
    assert lake.names(dataset) == {lake.old(dataset)}
    assert lake.rows_read(dataset) == 10
    assert lake.place.control_plane.logged_identifiers(dataset) == [legacy_identifier(dataset)]
    assert tables.files_under(lake.warehouse) == files
    assert f"{dataset}  done (back)" in lake.operator.types("show", dataset).out


def test_what_was_reverted_moves_again_when_it_is_told_to(lake: Lake) -> None:
    dataset = lake.moved(lake.dataset(), "done")
    assert f"Next: nothing (reroot revert {dataset} would take it back)" in lake.operator.types("show", dataset).out
    lake.operator.types("revert", dataset)
    lake.work(dataset, 2)
    assert f"reroot move --dataset {dataset} --again" in lake.operator.types("show", dataset).out
    assert lake.operator.types("move", "--all").code == 1
    assert lake.operator.types("move", "--dataset", dataset, "--again").code == 0
    assert lake.work(dataset, 2) == "done"
    assert lake.names(dataset) == {lake.new(dataset)}


def test_revert_all_takes_what_is_flipped_or_done_and_nothing_else(lake: Lake) -> None:
    flipped, done = lake.moved(lake.dataset(), "flipped"), lake.moved(lake.dataset(), "done")
    queued = lake.dataset()
    lake.operator.types("move", "--dataset", queued)
    ended = lake.operator.types("revert", "--all", "--yes")
    assert (ended.code, ended.out.splitlines()[0]) == (0, "2 datasets turned back.")
    assert {each: lake.row(each, "direction")[0] for each in (flipped, done, queued)} == {
        flipped: "back",
        done: "back",
        queued: "out",
    }
    again = lake.operator.types("revert", "--all", "--yes")
    assert (again.code, again.out.splitlines()) == (1, ["0 datasets turned back."])


def test_what_cannot_be_turned_back_is_named_and_the_others_are(lake: Lake) -> None:
    done, queued, never = lake.moved(lake.dataset(), "done"), lake.dataset(), lake.dataset()
    lake.operator.types("move", "--dataset", queued)
    ended = lake.operator.types("revert", queued, done, never)
    assert ended.code == 1
    assert sorted(ended.out.splitlines()) == sorted(
        [
            f"{queued}  stays: queued",
            f"{never}  stays: never planned",
            "1 dataset turned back.",
            "Next: reroot status --watch",
        ]
    )
    assert lake.row(done, "direction") == ("back",)


@pytest.mark.parametrize("arguments", [[], [UNKNOWN, "--all"], ["--nonsense"]])
def test_a_wrong_revert_is_one_line_and_exit_2(lake: Lake, arguments: list[str]) -> None:
    ended = lake.operator.types("revert", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.one_line.startswith("reroot: ")


def test_revert_without_a_broker_setting_changes_nothing(lake: Lake) -> None:
    dataset = lake.moved(lake.dataset(), "done")
    before = lake.everything()
    lake.operator.settings["REROOT_BROKER_URL"] = ""
    ended = lake.operator.types("revert", dataset)
    assert ended.code == 2
    assert "REROOT_BROKER_URL is not set" in ended.one_line
    assert lake.everything() == before


def test_revert_while_the_broker_is_away_is_in_the_ledger_all_the_same(lake: Lake) -> None:
    dataset = lake.moved(lake.dataset(), "done")
    lake.operator.settings["REROOT_BROKER_URL"] = NOWHERE
    ended = lake.operator.types("revert", dataset)
    assert ended.code == 3
    assert "the ledger has the jobs" in ended.one_line
    assert lake.work(dataset, 2) == "done"
    assert lake.names(dataset) == {lake.old(dataset)}


def test_revert_without_postgres_is_out_of_reach(lake: Lake) -> None:
    lake.operator.settings["REROOT_DATABASE_URL"] = "postgresql://nobody@127.0.0.1:1/nowhere"
    ended = lake.operator.types("revert", UNKNOWN)
    assert ended.code == 3
    assert "Postgres cannot be reached" in ended.one_line


# --- resolve


def test_show_says_how_a_divergence_is_decided(lake: Lake) -> None:
    dataset = lake.diverged()
    assert f"Next: reroot resolve {dataset} --keep old|new" in lake.operator.types("show", dataset).out


def test_resolve_shows_what_would_be_lost_and_asks_for_a_yes(lake: Lake) -> None:
    dataset = lake.diverged()
    before = lake.everything()
    ended = lake.operator.types("resolve", dataset, "--keep", "new")
    assert ended.code == 2
    assert "there is no terminal to ask" in ended.one_line
    lines = ended.out.splitlines()
    assert lines[0] == f"Would keep: {lake.new(dataset)}"
    assert lines[1] == "  2 snapshots, 15 rows"
    assert lines[2] == f"Would give up: {lake.old(dataset)}"
    assert lines[3] == "  2 snapshots, 13 rows; only here:"
    table = lake.tables.load_table((LEGACY_NAMESPACE, lake.old(dataset).name))
    lost = table.current_snapshot()
    assert lost is not None
    assert lines[4].endswith("  append    +3 rows")
    assert lines[4].strip()[:2] == "20"  # the time of the commit, with its year
    assert lines[5] == f"    snapshot {lost.snapshot_id}"
    assert lines[6] == "    written by an engine that does not give its name"
    assert lines[7] == f"  {table.metadata_location}"
    assert lines[8:] == ["No file is deleted, and the journal keeps this location."]
    assert lake.everything() == before


@pytest.mark.parametrize(("keep", "rows"), [("new", 15), ("old", 13)])
def test_a_worker_carries_the_decision_out_and_no_file_goes(lake: Lake, keep: str, rows: int) -> None:
    dataset = lake.diverged()
    files = tables.files_under(lake.warehouse)
    side = lake.old(dataset) if keep == "new" else lake.new(dataset)
    lost = lake.tables.load_table((*side.namespace, side.name)).metadata_location
    ended = lake.operator.types("resolve", dataset, "--keep", keep, "--yes")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1] == f"Ordered. Next: reroot show {dataset}"
    assert lake.work(dataset, 6) == "done"
    assert lake.rows_read(dataset) == rows
    assert lake.names(dataset) == {lake.new(dataset)}
    assert tables.files_under(lake.warehouse) >= files
    journal = lake.place.control_plane.execute(
        "SELECT metadata_location FROM reroot.pointers WHERE action = 'withdraw'"
    )
    assert (lost,) in journal


def test_resolve_says_who_wrote_what_would_be_lost(lake: Lake) -> None:
    dataset = lake.diverged()
    table = lake.tables.load_table((LEGACY_NAMESPACE, lake.old(dataset).name))
    summary = {"engine-name": "spark", "engine-version": "3.5.6", "spark.app.id": "app-20241130-7"}
    table.append(table.scan(limit=1).to_arrow(), snapshot_properties=summary)
    out = lake.operator.types("resolve", dataset, "--keep", "new").out
    assert "    written by spark 3.5.6, spark.app.id app-20241130-7" in out.splitlines()


def test_a_registration_of_an_earlier_target_cannot_be_kept_after_the_flip(lake: Lake) -> None:
    dataset = lake.diverged()
    lake.place.control_plane.execute("UPDATE reroot.moves SET park_beside = 'asia.tokyo'")
    before = lake.everything()
    ended = lake.operator.types("resolve", dataset, "--keep", "old", "--yes")
    assert ended.code == 2
    assert f"asia.tokyo.{lake.old(dataset).name} is a registration of an earlier target" in ended.err
    assert "only --keep new can be ordered" in ended.err
    assert lake.everything() == before


def test_what_was_committed_after_it_was_shown_is_not_given_up(lake: Lake) -> None:
    dataset = lake.diverged()
    assert lake.operator.types("resolve", dataset, "--keep", "new", "--yes").code == 0
    tables.append(lake.tables, lake.old(dataset), rows=4)
    assert lake.work(dataset, 3) == "parked"
    assert lake.row(dataset, "park_code") == ("diverged",)
    assert lake.names(dataset) == {lake.old(dataset), lake.new(dataset)}
    assert "+4 rows" in lake.operator.types("resolve", dataset, "--keep", "new").out


def test_a_change_without_a_snapshot_is_said_to_be_one(lake: Lake) -> None:
    dataset = lake.moved(lake.dataset(), "flipped")
    tables.append(lake.tables, lake.new(dataset))
    with lake.tables.load_table((LEGACY_NAMESPACE, lake.old(dataset).name)).transaction() as change:
        change.set_properties({"note": "changed"})
    assert lake.work(dataset) == "parked"
    out = lake.operator.types("resolve", dataset, "--keep", "new").out
    assert "  no snapshot of its own; changes of the schema or the properties" in out.splitlines()


def test_of_many_snapshots_the_last_are_shown_and_the_others_counted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_resolve, "_SHOWN", 2)
    dataset = lake.diverged()
    for rows in (7, 8):
        tables.append(lake.tables, lake.old(dataset), rows=rows)
    out = lake.operator.types("resolve", dataset, "--keep", "new").out
    assert [line.split()[-2] for line in out.splitlines() if line.endswith(" rows") and "+" in line] == ["+7", "+8"]
    assert "  … and 1 before these" in out.splitlines()


@pytest.mark.parametrize(("answer", "code"), [(True, 0), (False, 1)])
def test_at_a_terminal_it_asks(lake: Lake, monkeypatch: pytest.MonkeyPatch, *, answer: bool, code: int) -> None:
    dataset = lake.diverged()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    asked: list[str] = []

    def confirm(text: str) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr("typer.confirm", confirm)
    before = lake.everything()
    ended = lake.operator.types("resolve", dataset, "--keep", "new")
    assert (ended.code, asked) == (code, [f"Give up {legacy_identifier(dataset)}?"])
    assert (lake.everything() == before) is not answer
    if not answer:
        assert ended.one_line == "reroot: nothing was changed"


def test_a_row_that_changed_while_somebody_was_reading_is_left(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = lake.diverged()

    def somebody_else_retries(_: str) -> bool:
        return lake.operator.types("retry", dataset).code == 0

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", somebody_else_retries)
    ended = lake.operator.types("resolve", dataset, "--keep", "new")
    assert ended.code == 1
    assert f"{dataset} has changed meanwhile; nothing was done" in ended.one_line
    assert lake.row(dataset, "state, given_up") == ("flipped", None)


def test_only_a_divergence_can_be_resolved(lake: Lake) -> None:
    done, never = lake.moved(lake.dataset(), "done"), lake.dataset()
    for dataset in (done, never, UNKNOWN):
        ended = lake.operator.types("resolve", dataset, "--keep", "new", "--yes")
        assert (ended.code, ended.out) == (1, "")
        assert f"{dataset} is not parked as diverged: reroot show {dataset}" in ended.one_line


def test_a_side_that_is_gone_leaves_nothing_to_decide(lake: Lake) -> None:
    dataset = lake.diverged()
    lake.tables.drop_table((LEGACY_NAMESPACE, lake.old(dataset).name))
    ended = lake.operator.types("resolve", dataset, "--keep", "new", "--yes")
    assert ended.code == 1
    assert f"no table stands under {lake.old(dataset)}" in ended.one_line
    assert f"reroot retry {dataset}" in ended.one_line
    lake.operator.types("retry", dataset)
    assert lake.work(dataset) == "done"


@pytest.mark.parametrize("arguments", [[], [UNKNOWN], [UNKNOWN, "--keep", "both"], ["--keep", "new"]])
def test_a_wrong_resolve_is_one_line_and_exit_2(lake: Lake, arguments: list[str]) -> None:
    ended = lake.operator.types("resolve", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.one_line.startswith("reroot: ")


def test_resolve_needs_the_catalogs_settings_and_its_answer(lake: Lake) -> None:
    dataset = lake.diverged()
    before = lake.everything()
    lake.operator.settings["REROOT_CATALOG_URI"] = "postgresql+psycopg://nobody@127.0.0.1:1/nowhere"
    away = lake.operator.types("resolve", dataset, "--keep", "new", "--yes")
    assert away.code == 3
    assert away.one_line.startswith("reroot: the catalog cannot be asked: ")
    lake.operator.settings["REROOT_CATALOG_URI"] = ""
    unset = lake.operator.types("resolve", dataset, "--keep", "new", "--yes")
    assert unset.code == 2
    assert "REROOT_CATALOG_URI is not set" in unset.one_line
    assert lake.everything() == before
