"""Which datasets a command is about: every command takes the same options, and a wrong one is an error that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support import ledger
from tests.support.operator import Operator
from tests.support.place import Place
from worker.controlplane import migrate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.controlplane import ControlPlaneFixture

UNKNOWN = "00000000-0000-4000-8000-000000000000"
SCOPED = [
    ["plan"],
    ["move", "--all"],
    ["status"],
    ["check"],
    ["parked"],
    ["retry", "--all"],
    ["cancel", "--all"],
    ["revert", "--all", "--yes"],
]


@pytest.fixture
def place(control_plane: ControlPlaneFixture) -> Place:
    return Place(control_plane)


@pytest.fixture
def operator(database: str, valkey: str) -> Operator:
    return Operator(database, valkey)


@pytest.mark.parametrize("arguments", SCOPED, ids=lambda arguments: arguments[0])
def test_a_workspace_or_catalog_that_does_not_exist_is_an_error_that_says_what_does(
    place: Place, operator: Operator, arguments: list[str]
) -> None:
    place.dataset(None)
    before = place.control_plane.execute("SELECT * FROM reroot.moves")
    for given, kind, there in (
        (["--workspace", UNKNOWN], "workspace", place.workspace),
        (["--workspace", "no id"], "workspace", place.workspace),
        (["--workspace", ""], "workspace", place.workspace),
        (["--catalog", "saels"], "catalog", "sales"),
        (["--catalog", ""], "catalog", "sales"),
    ):
        ended = operator.types(*arguments, *given)
        assert (ended.code, ended.out) == (1, "")
        assert ended.one_line.startswith(f"reroot: no such {kind}: {given[1] or 'an empty name'}; there are: ")
        assert there in ended.one_line
    assert place.control_plane.execute("SELECT * FROM reroot.moves") == before


def test_the_nearest_of_many_catalogs_is_named(place: Place, operator: Operator) -> None:
    for name in ("Art", "Books", "Cars", "Dogs"):
        place.control_plane.catalog(place.workspace, name)
    line = operator.types("plan", "--catalog", "saels").one_line
    assert "there are: sales, art, books and 2 more" in line


def test_a_catalog_of_another_workspace_is_not_this_one_s(
    place: Place, operator: Operator, control_plane: ControlPlaneFixture
) -> None:
    Place(control_plane, "Art")
    line = operator.types("plan", "--workspace", place.workspace, "--catalog", "art").one_line
    assert "no such catalog: art; there are: sales; nothing was done" in line


def test_a_workspace_is_read_as_postgres_reads_ids(place: Place, operator: Operator) -> None:
    place.dataset(None)
    ended = operator.types("plan", "--json", "--workspace", place.workspace.upper().replace("-", ""))
    assert ended.json()["planned"] == 1


Scope = list[str]


@pytest.mark.parametrize(
    "scope_of",
    [
        lambda place, _: ["--workspace", place.workspace],
        lambda _, __: ["--catalog", "art"],
        lambda _, dataset: ["--dataset", dataset],
    ],
    ids=["workspace", "catalog", "dataset"],
)
def test_each_command_takes_what_is_in_scope_and_nothing_else(
    place: Place,
    operator: Operator,
    control_plane: ControlPlaneFixture,
    scope_of: Callable[[Place, str], Scope],
) -> None:
    other = Place(control_plane, "Art")
    mine, theirs = place.dataset(None), other.dataset(None)
    scope = scope_of(other, theirs)
    everything = [] if "--dataset" in scope else ["--all"]
    assert operator.types("check", "--json", *scope).json()["left"]["movable"]["examples"] == [theirs]
    assert [each["log_rows_now"] for each in operator.types("check", "--json", *scope).json()["namespaces"]] == [1]

    operator.types("move", "--all")
    catalogs = operator.types("status", "--json", *scope).json()["catalogs"]
    assert [(each["catalog"], each["queued"]) for each in catalogs] == [("art", 1)]

    for each in (mine, theirs):
        ledger.park(control_plane, each)
    failures = operator.types("status", "--json", *scope).json()["failures"]
    assert [each["dataset_id"] for each in failures] == [theirs]
    assert operator.types("retry", *everything, *scope).code == 0
    assert states(control_plane) == {mine: "parked", theirs: "queued"}

    operator.types("retry", mine)
    for each in (mine, theirs):
        ledger.flip(control_plane, each)
    assert operator.types("status", "--json", *scope).json()["rate"]["flipped"] == 1
    assert operator.types("revert", *everything, "--yes", *scope).code == 0
    assert states(control_plane) == {mine: "flipped", theirs: "queued"}


def states(control_plane: ControlPlaneFixture) -> dict[str, str]:
    return dict(control_plane.execute("SELECT dataset_id, state FROM reroot.moves"))


def test_a_limit_bounds_what_is_retried_and_reverted(place: Place, operator: Operator) -> None:
    datasets = place.datasets(3)
    operator.types("move", "--all")
    for each in datasets:
        ledger.park(place.control_plane, each)
    operator.types("retry", "--all", "--limit", "2")
    assert sorted(states(place.control_plane).values()) == ["parked", "queued", "queued"]
    operator.types("retry", "--all")
    for each in datasets:
        ledger.flip(place.control_plane, each)
    operator.types("revert", "--all", "--yes", "--limit", "1")
    assert sorted(states(place.control_plane).values()) == ["flipped", "flipped", "queued"]


@pytest.mark.parametrize("command", ["move", "retry", "revert"])
def test_an_order_says_which_in_one_way(operator: Operator, command: str) -> None:
    for arguments in ([], ["--dataset", UNKNOWN, "--all"], ["--dataset", UNKNOWN, "--limit", "1"], ["--catalog", "x"]):
        ended = operator.types(command, *arguments)
        assert ended.code == 2
        assert "--all" in ended.one_line


def test_where_ids_are_numbers_another_text_is_no_such_dataset(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE workspaces (id bigint PRIMARY KEY);"
            "CREATE TABLE catalogs (id bigint PRIMARY KEY, workspace_id bigint NOT NULL, name text NOT NULL);"
            "CREATE TABLE schemas (id bigint PRIMARY KEY, catalog_id bigint NOT NULL, name text NOT NULL);"
            "CREATE TABLE datasets (id bigint PRIMARY KEY, workspace_id bigint NOT NULL, schema_id bigint, name text);"
            "CREATE TABLE iceberg_sync_log (id bigserial PRIMARY KEY, dataset_id bigint NOT NULL, mode text,"
            " status text, iceberg_table text, snapshot_id bigint, row_count bigint, error text,"
            " started_at timestamptz, finished_at timestamptz)"
        )
        migrate.upgrade(empty_database)
        connection.execute(
            "INSERT INTO workspaces VALUES (1); INSERT INTO catalogs VALUES (2, 1, 'Sales');"
            "INSERT INTO schemas VALUES (3, 2, 'Europe'); INSERT INTO datasets VALUES (4, 1, 3, 'Orders');"
            "INSERT INTO iceberg_sync_log (dataset_id, status, iceberg_table) VALUES (4, 'succeeded', 'datasets.o')"
        )
    operator = Operator(empty_database)
    assert operator.types("plan", "--json", "--dataset", "004", "--workspace", "01").json()["planned"] == 1
    for unknown in ("abc", "4.5", "99999999999999999999", "-"):
        for command in (["plan", "--dataset"], ["move", "--dry-run", "--dataset"], ["show"], ["status", "--dataset"]):
            ended = operator.types(*command, unknown)
            assert (ended.code, ended.out) == (1, "")
            assert f"no such dataset: {unknown}; nothing was done" in ended.one_line
        assert "no such workspace" in operator.types("plan", "--workspace", unknown).one_line


@pytest.mark.parametrize(
    "arguments", [["revert", "--all"], ["revert", "--all", "--catalog", "sales"], ["db", "downgrade"]]
)
def test_what_is_hard_to_take_back_is_asked_for_and_refused_without_a_terminal(
    place: Place, operator: Operator, arguments: list[str]
) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    ledger.flip(place.control_plane, dataset)
    before = place.control_plane.execute("SELECT * FROM reroot.moves")
    ended = operator.types(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "there is no terminal to ask" in ended.one_line
    assert "give --yes; nothing was done" in ended.one_line
    assert place.control_plane.execute("SELECT * FROM reroot.moves") == before


@pytest.mark.parametrize(("answer", "code", "state"), [(False, 1, "flipped"), (True, 0, "queued")])
def test_a_person_at_a_terminal_is_asked(
    place: Place, operator: Operator, monkeypatch: pytest.MonkeyPatch, *, answer: bool, code: int, state: str
) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    ledger.flip(place.control_plane, dataset)
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)

    def confirm(text: str) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr("typer.confirm", confirm)
    assert operator.types("revert", "--all").code == code
    assert asked == ["Take 1 dataset back to the legacy namespace?"]
    assert states(place.control_plane) == {dataset: state}


def test_two_workspaces_whose_names_meet_in_one_warehouse_are_warned_about(
    place: Place, operator: Operator, control_plane: ControlPlaneFixture
) -> None:
    other, apart = Place(control_plane), Place(control_plane, "Art")
    mine, theirs, alone = (each.dataset(None) for each in (place, other, apart))

    def warned() -> set[str]:
        rows = operator.types("plan", "--json").json()["datasets"]
        return {each["dataset_id"] for each in rows if "namespace_shared" in each["warnings"]}

    operator.settings["REROOT_WAREHOUSE"] = "lake"
    assert warned() == {mine, theirs}
    assert "namespace_shared" in operator.types("plan", "--dataset", mine).out
    del operator.settings["REROOT_WAREHOUSE"]
    operator.settings["REROOT_WAREHOUSE_TEMPLATE"] = "w_{workspace_hex}"
    assert warned() == set()
    assert alone
