"""What an operator asks and orders while moves are under way: status, retry, check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import redis

from tests.support import ledger
from tests.support.controlplane import legacy_identifier
from tests.support.operator import Operator
from tests.support.place import Place
from worker.outcome import ParkCode

if TYPE_CHECKING:
    from tests.support.controlplane import ControlPlaneFixture

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def place(control_plane: ControlPlaneFixture) -> Place:
    return Place(control_plane)


@pytest.fixture
def operator(database: str, valkey: str) -> Operator:
    return Operator(database, valkey)


def row(control_plane: ControlPlaneFixture, dataset: str, columns: str) -> tuple[Any, ...]:
    return control_plane.execute(f"SELECT {columns} FROM reroot.moves WHERE dataset_id = %s", (dataset,))[0]


def shape(value: Any) -> Any:
    """A JSON document without its values: keys, and the types of what they hold."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return type(value).__name__


# --- status


def busy_ledger(place: Place, operator: Operator) -> dict[str, str]:
    """One dataset in each state, one of them waiting; by state."""
    queued, flipped, done, parked, reverted, waiting = place.datasets(6)
    assert operator.types("move", "--all").code == 0
    for each in (flipped, done, reverted):
        ledger.flip(place.control_plane, each)
    for each in (done, reverted):
        ledger.finish(place.control_plane, each)
    ledger.take_back(place.control_plane, reverted)
    ledger.park(place.control_plane, parked)
    place.control_plane.execute(
        "UPDATE reroot.moves SET waiting_for = 'the warehouse w does not answer', busy_since = now(), busy_count = 2,"
        " not_before = now() + interval '30 seconds' WHERE dataset_id = %s",
        (waiting,),
    )
    place.control_plane.execute(
        "INSERT INTO reroot.warehouses (warehouse, down_since, down_until, down_reason)"
        " VALUES ('w', now() - interval '3 minutes', now() + interval '20 seconds', '503')"
    )
    return {"queued": queued, "flipped": flipped, "done": done, "parked": parked, "waiting": waiting}


def test_status_says_where_everything_stands(place: Place, operator: Operator) -> None:
    datasets = busy_ledger(place, operator)
    ledger.worker_alive(place.control_plane)
    ended = operator.types("status")
    assert (ended.code, ended.err) == (0, "")
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert lines[0] == "catalog queued flipped done parked reverted"
    assert lines[1] == "sales 2 1 1 1 1"
    assert "workers 1 alive, 8 processes" in lines
    assert "jobs 0 running, 1 due, 1 in their grace" in lines
    assert "rate 3 flipped and 0 done in the last 5 min" in lines
    assert any(line.startswith(f"oldest {datasets['queued']}, queued, due for") for line in lines)
    assert "waiting 1 dataset, again in 29 s: the warehouse w does not answer" in lines
    assert f"busy {datasets['waiting']}, lock held for 0 s, tried 2 times" in lines
    assert "away warehouse w for 3 min, asked again in 19 s" in lines
    assert f"{datasets['parked']} name_taken, 0 s ago" in lines


def test_status_before_the_first_move_says_what_to_do(place: Place, operator: Operator) -> None:
    ended = operator.types("status")
    assert "No move has been ordered. Next: reroot plan" in ended.out
    assert "none alive" in ended.out
    assert place.control_plane.execute("SELECT count(*) FROM reroot.moves") == [(0,)]


def test_status_tells_two_catalogs_of_one_slug_apart(control_plane: ControlPlaneFixture, operator: Operator) -> None:
    one, two = Place(control_plane), Place(control_plane)
    one.dataset(None)
    two.dataset(None)
    operator.types("move", "--all")
    out = operator.types("status").out
    assert f"sales ({one.workspace[:8]})" in out
    assert f"sales ({two.workspace[:8]})" in out
    assert "total" in out


def test_the_shape_of_status_json(place: Place, operator: Operator) -> None:
    busy_ledger(place, operator)
    ledger.worker_alive(place.control_plane)
    document = operator.types("status", "--json").json()
    assert document["catalogs"] == [
        {
            "workspace_id": place.workspace,
            "catalog": "sales",
            "queued": 2,
            "flipped": 1,
            "done": 1,
            "parked": 1,
            "reverted": 1,
        }
    ]
    assert (document["running"], document["due"], document["in_grace"]) == (0, 1, 1)
    del document["catalogs"]
    assert shape(document) == {
        "running": "int",
        "due": "int",
        "in_grace": "int",
        "pairs": {"in_grace": "int", "between_attempts": "int", "parked": "int"},
        "oldest": {"dataset_id": "str", "state": "str", "seconds": "float"},
        "rate": {"seconds": "int", "flipped": "int", "done": "int"},
        "waiting": [{"waiting_for": "str", "datasets": "int", "next_in": "float"}],
        "busy": [{"dataset_id": "str", "seconds": "float", "times": "int"}],
        "warehouses": [{"warehouse": "str", "strategy": "NoneType", "reason": "str", "set_by_operator": "bool"}],
        "warehouses_away": [
            {
                "warehouse": "str",
                "seconds": "float",
                "retry_in": "float",
                "reason": "str",
                "credentials_refused": "bool",
            }
        ],
        "failures": [{"dataset_id": "str", "code": "str", "text": "str", "remedy": "str", "seconds": "float"}],
        "workers": [{"worker": "str", "queues": ["str"], "concurrency": "int", "seconds": "float"}],
    }


# --- retry


def test_retry_queues_what_was_parked_before_its_flip(place: Place, operator: Operator, valkey: str) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    ledger.park(place.control_plane, dataset)
    with redis.Redis.from_url(valkey) as broker:
        broker.flushdb()
    claim = row(place.control_plane, dataset, "claim")[0]
    ended = operator.types("retry", dataset)
    assert (ended.code, ended.err) == (0, "")
    assert "1 dataset will be tried again." in ended.out
    columns = "state, claim, attempts, park_code, park_text, park_remedy, published_at IS NOT NULL, not_before <= now()"
    assert row(place.control_plane, dataset, columns) == ("queued", claim + 1, 0, None, None, None, True, True)
    event = place.control_plane.execute(
        "SELECT event, transition, from_state, to_state, claim, detail FROM reroot.move_events ORDER BY id DESC LIMIT 1"
    )[0]
    assert event == ("requeued", "g", "parked", "queued", claim + 1, {"park_code": "name_taken"})
    with redis.Redis.from_url(valkey) as broker:
        assert broker.llen("moves") == 1


def test_retry_gives_what_was_parked_after_its_flip_back_to_the_withdrawal(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    ledger.flip(place.control_plane, dataset)
    ledger.park(place.control_plane, dataset, "diverged")
    assert operator.types("retry", dataset).code == 0
    assert row(place.control_plane, dataset, "state, table_uuid") == ("flipped", ledger.UUID)
    letter = place.control_plane.execute("SELECT transition FROM reroot.move_events ORDER BY id DESC LIMIT 1")
    assert letter == [("h",)]


def test_retry_by_code_takes_that_code_and_no_other(place: Place, operator: Operator) -> None:
    taken, diverged = place.datasets(2)
    operator.types("move", "--all")
    ledger.park(place.control_plane, taken, "name_taken")
    ledger.park(place.control_plane, diverged, "diverged")
    ended = operator.types("retry", "--code", "name_taken")
    assert ended.code == 0
    assert "name_taken  1" in ended.out
    assert row(place.control_plane, taken, "state") == ("queued",)
    assert row(place.control_plane, diverged, "state") == ("parked",)
    assert "Nothing is parked with forbidden." in operator.types("retry", "--code", "forbidden").out


def test_what_an_operator_accepts_is_noted_for_the_dataset_and_for_no_other(place: Place, operator: Operator) -> None:
    unread, damaged = place.datasets(2)
    operator.types("move", "--all")
    ledger.park(place.control_plane, unread, "soak_unsupported")
    ledger.park(place.control_plane, damaged, "soak_failed")
    ended = operator.types("retry", unread, damaged, "--accept", "soak_unsupported")
    assert ended.code == 1
    assert f"{damaged}: not parked with soak_unsupported, nothing was accepted" in ended.out
    assert row(place.control_plane, unread, "state, accepted") == ("queued", ["soak_unsupported"])
    assert row(place.control_plane, damaged, "state, accepted") == ("parked", [])
    detail = place.control_plane.execute("SELECT detail FROM reroot.move_events WHERE event = 'requeued'")
    assert detail == [({"park_code": "soak_unsupported", "accepted": "soak_unsupported"},)]
    assert "accepted soak_unsupported" in operator.types("show", unread).out


def test_retry_leaves_what_is_not_parked(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    before = place.control_plane.execute("SELECT * FROM reroot.moves")
    ended = operator.types("retry", dataset)
    assert ended.code == 0
    assert f"{dataset}: queued, a worker is to take it anyway" in ended.out
    assert place.control_plane.execute("SELECT * FROM reroot.moves") == before


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [UNKNOWN, "--code", "name_taken"],
        ["--code", "nonsense"],
        ["--code", "soak_unsupported", "--accept", "soak_unsupported"],
        [UNKNOWN, "--accept", "soak_failed"],
    ],
)
def test_a_wrong_retry_is_one_line_and_exit_2(operator: Operator, arguments: list[str]) -> None:
    ended = operator.types("retry", *arguments)
    assert ended.code == 2
    assert ended.one_line.startswith("reroot: ")


def test_retry_of_something_that_was_never_planned_changes_nothing(place: Place, operator: Operator) -> None:
    dataset, other = place.datasets(2)
    operator.types("move", "--dataset", dataset)
    ledger.park(place.control_plane, dataset)
    ended = operator.types("retry", dataset, other)
    assert ended.code == 1
    assert f"never planned: {other}" in ended.one_line
    assert row(place.control_plane, dataset, "state") == ("parked",)


def late_row(place: Place, operator: Operator) -> str:
    """A done dataset, with a row that a late writer added under the old identifier."""
    dataset = place.dataset(None)
    operator.types("move", "--all")
    ledger.flip(place.control_plane, dataset)
    ledger.finish(place.control_plane, dataset)
    place.control_plane.log(dataset)
    return dataset


def test_retry_of_a_done_dataset_names_its_late_rows_rightly(place: Place, operator: Operator) -> None:
    dataset = late_row(place, operator)
    place.control_plane.log(dataset, iceberg_table="datasets.another")
    place.control_plane.log(dataset, status="failed")
    ended = operator.types("retry", dataset)
    assert ended.code == 0
    assert f"{dataset}: 1 late log row rewritten" in ended.out
    name = "sales.europe.ds_" + dataset.replace("-", "")
    assert place.control_plane.logged_identifiers(dataset) == [name, name, "datasets.another"]
    assert place.control_plane.logged_identifiers(dataset, "failed") == [legacy_identifier(dataset)]
    event = place.control_plane.execute("SELECT event, detail FROM reroot.move_events ORDER BY id DESC LIMIT 1")
    assert event == [("log_rewritten", {"log_rows": 1})]


def test_late_rows_are_not_touched_while_a_writer_holds_the_lock(
    place: Place, operator: Operator, database: str
) -> None:
    dataset = late_row(place, operator)
    with psycopg.connect(database) as writer:
        writer.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (dataset,))
        ended = operator.types("retry", dataset)
    assert ended.code == 1
    assert f"{dataset}: another program holds its lock: try again" in ended.out
    assert legacy_identifier(dataset) in place.control_plane.logged_identifiers(dataset)


def test_late_rows_are_not_touched_where_the_column_says_something_else(place: Place, operator: Operator) -> None:
    dataset = late_row(place, operator)
    place.control_plane.execute("UPDATE datasets SET iceberg_namespace = 'other.place' WHERE id = %s", (dataset,))
    ended = operator.types("retry", dataset)
    assert ended.code == 1
    assert legacy_identifier(dataset) in place.control_plane.logged_identifiers(dataset)


def test_every_code_that_a_job_parks_with_can_be_retried(operator: Operator) -> None:
    for code in ParkCode:
        assert operator.types("retry", "--code", code.value).code == 0


# --- check


def namespaces(document: Any) -> dict[str, tuple[int, int, int, int]]:
    return {
        each["namespace"]: (
            each["datasets_before"],
            each["log_rows_before"],
            each["datasets_now"],
            each["log_rows_now"],
        )
        for each in document["namespaces"]
    }


def test_check_fails_while_something_can_move(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None, None)
    ended = operator.types("check", "--json")
    assert ended.code == 1
    assert ended.json() == {
        "passed": False,
        "left": {"movable": {"datasets": 1, "log_rows": 2, "examples": [dataset]}},
        "apart": {},
        "in_grace": 0,
        "pairs": {"datasets": 0, "log_rows": 0, "examples": []},
        "namespaces": [
            {
                "namespace": "datasets",
                "datasets_before": 1,
                "log_rows_before": 2,
                "datasets_now": 1,
                "log_rows_now": 2,
            }
        ],
    }


def test_check_passes_when_all_that_could_move_has_and_counts_both_sides(place: Place, operator: Operator) -> None:
    one, two = place.dataset(None, None), place.dataset(None)
    homeless = place.dataset(None, schema=None)
    operator.types("move", "--all")
    for each in (one, two):
        ledger.flip(place.control_plane, each)
    ledger.finish(place.control_plane, one)
    place.control_plane.log(one, iceberg_table="sales.europe.ds_" + one.replace("-", ""))  # written since
    ended = operator.types("check", "--json")
    assert ended.code == 0
    document = ended.json()
    assert (document["passed"], document["left"], document["in_grace"]) == (True, {}, 1)
    assert document["apart"] == {"no_schema": {"datasets": 1, "log_rows": 1, "examples": [homeless]}}
    assert namespaces(document) == {"datasets": (3, 4, 1, 1), "sales.europe": (0, 0, 2, 4)}
    text = operator.types("check").out
    assert text.startswith("Nothing movable is left")
    assert "1 dataset in the grace period" in text
    assert "1 dataset with two names: maintenance must skip what reroot.pairs lists" in text


def test_status_says_which_pairs_do_not_end_soon(place: Place, operator: Operator) -> None:
    dataset, _ = place.dataset(None), place.dataset(None)
    operator.types("move", "--all")
    assert "pairs" not in operator.types("status").out
    place.control_plane.execute(
        "INSERT INTO reroot.pointers (dataset_id, claim, action, namespace, table_name, warehouse, table_uuid,"
        " metadata_location, sequence_number) VALUES (%s, 1, 'register', 'sales.europe', 'ds', 'w', 'u', 'file:/m', 1)",
        (dataset,),
    )
    assert "0 parked, 1 between attempts" in operator.types("status").out
    ledger.park(place.control_plane, dataset, "forbidden")
    assert "1 parked, 0 between attempts" in operator.types("status").out


def test_check_lists_late_rows_of_done_datasets_and_retry_settles_it(place: Place, operator: Operator) -> None:
    dataset = late_row(place, operator)
    ended = operator.types("check")
    assert ended.code == 1
    assert f"late_rows  {dataset}" in ended.out
    operator.types("retry", dataset)
    assert operator.types("check").code == 0


@pytest.mark.parametrize(
    ("flipped", "kind"),
    [(False, "parked"), (True, "two_pointers")],
)
def test_check_minds_what_is_parked(place: Place, operator: Operator, *, flipped: bool, kind: str) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    if flipped:
        ledger.flip(place.control_plane, dataset)
    ledger.park(place.control_plane, dataset)
    ended = operator.types("check", "--json")
    assert ended.code == 1
    assert list(ended.json()["left"]) == [kind]


def test_check_lets_what_is_parked_and_has_no_place_to_go_stand_apart(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    ledger.park(place.control_plane, dataset, "no_place")
    place.control_plane.execute("UPDATE datasets SET schema_id = NULL WHERE id = %s", (dataset,))
    ended = operator.types("check", "--json")
    assert (ended.code, list(ended.json()["apart"])) == (0, ["no_schema"])


def test_check_sees_a_column_that_was_cleared_after_the_move(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    ledger.flip(place.control_plane, dataset)
    place.control_plane.execute("UPDATE datasets SET iceberg_namespace = NULL WHERE id = %s", (dataset,))
    ended = operator.types("check", "--json")
    assert (ended.code, list(ended.json()["left"])) == (1, ["column_reset"])


def test_what_was_taken_back_does_not_fail_the_check(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    ledger.flip(place.control_plane, dataset)
    ledger.finish(place.control_plane, dataset)
    ledger.take_back(place.control_plane, dataset)
    ended = operator.types("check", "--json")
    assert (ended.code, list(ended.json()["apart"])) == (0, ["reverted"])
