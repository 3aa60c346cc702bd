"""How the tables of a warehouse are moved: what is found out, an operator's word about it, and what status says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.lake import WAREHOUSE, Lake
from tests.support.odd_server import OddServer, error_reply
from worker import wiring
from worker.moves.ports import CREDENTIALS_REFUSED
from worker.outcome import Wait
from worker.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.controlplane import ControlPlaneFixture


@pytest.fixture
def lake(database: str, valkey: str, control_plane: ControlPlaneFixture, tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(database, valkey, control_plane, tmp_path)
    yield lake
    lake.close()


def test_what_is_found_out_about_a_warehouse_is_told_with_its_reason(lake: Lake) -> None:
    assert lake.operator.types("warehouse").out.splitlines() == ["None is known yet."]
    lake.moved(lake.dataset(), "flipped")
    ended = lake.operator.types("warehouse", WAREHOUSE)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == ["w  register", "  because   two names may hold one table"]
    status = lake.operator.types("status")
    assert "strategy   register in w: two names may hold one table" in status.out.splitlines()
    assert lake.operator.types("status", "--json").json()["warehouses"] == [
        {
            "warehouse": "w",
            "strategy": "register",
            "reason": "two names may hold one table",
            "set_by_operator": False,
        }
    ]


def test_an_operators_word_is_followed_and_can_be_taken_back(lake: Lake) -> None:
    ended = lake.operator.types("warehouse", WAREHOUSE, "--strategy", "rename")
    assert (ended.code, ended.out.splitlines()) == (0, ["w  rename", "  because   set by an operator"])
    dataset = lake.dataset()
    lake.operator.types("move", "--dataset", dataset)
    assert lake.work(dataset) == "done"
    assert lake.names(dataset) == {lake.new(dataset)}
    ended = lake.operator.types("warehouse", WAREHOUSE, "--strategy", "auto")
    assert (ended.code, ended.out.splitlines()) == (0, ["w  not known yet"])
    assert "strategy   not known yet in w: the first move finds it out" in lake.operator.types("status").out
    lake.moved(lake.dataset(), "flipped")


def test_a_setting_goes_before_what_was_found_out_and_an_operator_before_both(lake: Lake) -> None:
    lake.moved(lake.dataset(), "flipped")
    lake.operator.settings["REROOT_STRATEGY"] = "rename"
    assert "  but       REROOT_STRATEGY=rename decides" in lake.operator.types("warehouse").out.splitlines()
    assert "strategy   rename in w: REROOT_STRATEGY=rename" in lake.operator.types("status").out.splitlines()
    lake.operator.types("warehouse", WAREHOUSE, "--strategy", "register")
    assert "decides" not in lake.operator.types("warehouse").out
    assert "strategy   register in w: set by an operator" in lake.operator.types("status").out.splitlines()


def test_a_warehouse_of_which_nothing_is_known_is_no_failure(lake: Lake) -> None:
    ended = lake.operator.types("warehouse", "other")
    assert (ended.code, ended.out.splitlines()) == (0, ["Nothing is known of it yet: the first move finds it out."])


@pytest.mark.parametrize(
    "arguments", [["--strategy", "rename"], [WAREHOUSE, "--strategy", "both"], ["", "--strategy", "rename"], [" "]]
)
def test_a_wrong_warehouse_is_one_line_and_exit_2(lake: Lake, arguments: list[str]) -> None:
    ended = lake.operator.types("warehouse", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.one_line.startswith("reroot: ")


def test_a_strategy_for_a_warehouse_that_nothing_uses_is_set_with_a_warning(lake: Lake) -> None:
    ended = lake.operator.types("warehouse", "lakee", "--strategy", "rename")
    assert (ended.code, ended.out.splitlines()[0]) == (0, "lakee  rename")
    assert "nothing uses a warehouse lakee yet" in ended.one_line
    assert lake.operator.types("warehouse", "lakee", "--strategy", "auto").err == ""


def test_a_strategy_for_a_warehouse_of_a_workspace_is_set_without_a_word(lake: Lake) -> None:
    lake.dataset()
    lake.place.control_plane.execute("INSERT INTO reroot.tenants SELECT id::text, 'own' FROM workspaces LIMIT 1")
    for name in (WAREHOUSE, "own"):
        assert lake.operator.types("warehouse", name, "--strategy", "rename").err == ""


def away(lake: Lake, warehouse: str, why: str) -> None:
    lake.place.control_plane.execute(
        "INSERT INTO reroot.warehouses (warehouse, down_since, down_until, down_reason)"
        " VALUES (%s, now() - interval '4 minutes', now() + interval '1 minute', %s)",
        (warehouse, why),
    )


def test_refused_credentials_are_said_before_everything_else(lake: Lake) -> None:
    away(lake, "shut", f"{CREDENTIALS_REFUSED}: the catalog did not load the table: 401 NotAuthorizedException")
    away(lake, "asleep", "503")
    lines = lake.operator.types("status").out.splitlines()
    assert lines[0] == "CREDENTIALS REFUSED by warehouse shut for 4 min: nothing moves there"
    assert lines[1].strip().startswith(CREDENTIALS_REFUSED)
    assert "REROOT_CATALOG_AUTH" in lines[2]
    document = lake.operator.types("status", "--json").json()
    assert {each["warehouse"]: each["credentials_refused"] for each in document["warehouses_away"]} == {
        "shut": True,
        "asleep": False,
    }


def test_a_warehouse_that_is_merely_away_is_no_cause_for_shouting(lake: Lake) -> None:
    away(lake, "asleep", "503")
    assert "CREDENTIALS" not in lake.operator.types("status").out
    assert "away for 240 s: 503" in " ".join(lake.operator.types("warehouse", "asleep").out.split())


def test_a_worker_that_is_refused_parks_nobody_and_status_shouts(lake: Lake) -> None:
    dataset = lake.dataset()
    lake.operator.types("move", "--dataset", dataset)
    with OddServer(error_reply(401, "NotAuthorizedException")) as server:
        settings = {**lake.operator.environment(), "REROOT_CATALOG_TYPE": "rest", "REROOT_CATALOG_URI": server.uri}
        runtime = wiring.build(load_settings({**settings, "REROOT_WAREHOUSE_LOCATION": ""}), "worker-2")
        outcome = runtime.move(dataset)
        runtime.close()
    assert isinstance(outcome, Wait)
    assert lake.row(dataset, "state, attempts") == ("queued", 0)
    lines = lake.operator.types("status").out.splitlines()
    assert lines[0] == "CREDENTIALS REFUSED by warehouse w for 0 s: nothing moves there"
    assert "401" in lines[1]
