"""Ordering moves: what stands in the ledger and in the queue afterwards, and what the operator is told."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis

from demo.processes import wait_until
from producer import publish
from tests.support import ledger
from tests.support.operator import NOWHERE, Operator
from tests.support.place import Place
from worker.controlplane.connection import Connection, ControlPlaneAwayError, connect
from worker.controlplane.enqueue import PlannedRow, enqueue
from worker.moves.machine import LEGAL, State

if TYPE_CHECKING:
    from tests.support.controlplane import ControlPlaneFixture

UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def place(control_plane: ControlPlaneFixture) -> Place:
    return Place(control_plane)


@pytest.fixture
def operator(database: str, valkey: str) -> Operator:
    return Operator(database, valkey)


def states(control_plane: ControlPlaneFixture) -> dict[str, str]:
    return {row[0]: row[1] for row in control_plane.execute("SELECT dataset_id, state FROM reroot.moves")}


def queued_messages(url: str) -> int:
    with redis.Redis.from_url(url) as broker:
        number: Any = broker.llen("moves")
        return int(number)


def test_all_that_can_move_is_ordered_with_its_event_and_its_message(
    place: Place, operator: Operator, valkey: str
) -> None:
    datasets = place.datasets(3)
    place.dataset(None, schema=None)
    ended = operator.types("move", "--all")
    assert ended.code == 0
    assert "3 moves ordered." in ended.out
    assert "Not ordered now: no_schema 1." in ended.out
    assert states(place.control_plane) == dict.fromkeys(datasets, "queued")
    assert queued_messages(valkey) == 3
    rows = place.control_plane.execute(
        "SELECT m.workspace_id, m.source_identifier, m.table_name, m.target_namespace, m.direction, m.claim,"
        " e.event, e.transition, e.from_state, e.to_state, e.detail"
        " FROM reroot.moves m JOIN reroot.move_events e USING (dataset_id) ORDER BY dataset_id"
    )
    name = "ds_" + datasets[0].replace("-", "")
    assert rows[0] == (
        *(place.workspace, f"datasets.{name}", name, "sales.europe", "out", 0, "planned", "a", None, "queued"),
        {"source": f"datasets.{name}", "target_namespace": "sales.europe"},
    )
    assert len(rows) == 3


def test_ordering_again_changes_nothing_and_is_an_error_that_says_why(place: Place, operator: Operator) -> None:
    place.datasets(2)
    assert operator.types("move", "--all").code == 0
    before = place.control_plane.execute("SELECT * FROM reroot.moves ORDER BY 1")
    ended = operator.types("move", "--all")
    assert ended.code == 1
    assert ended.one_line == ("reroot: nothing to move: queued 2 (planned already, a worker takes it: reroot status)")
    assert place.control_plane.execute("SELECT * FROM reroot.moves ORDER BY 1") == before
    assert len(place.control_plane.execute("SELECT 1 FROM reroot.move_events")) == 2


def test_an_empty_selection_never_means_everything(place: Place, operator: Operator) -> None:
    place.datasets(2)
    place.control_plane.catalog(place.workspace, "Empty")
    ended = operator.types("move", "--all", "--catalog", "empty")
    assert ended.code == 1
    assert ended.one_line.startswith("reroot: nothing to move: no dataset is in scope")
    assert states(place.control_plane) == {}


def test_a_limit_takes_the_first_and_the_next_call_goes_on(place: Place, operator: Operator) -> None:
    datasets = place.datasets(5)
    ended = operator.types("move", "--all", "--limit", "2")
    assert "Not ordered now: beyond_limit 3." in ended.out
    assert set(states(place.control_plane)) == set(datasets[:2])
    operator.types("move", "--all", "--limit", "2")
    assert set(states(place.control_plane)) == set(datasets[:4])


def test_a_catalog_and_a_workspace_narrow_it(
    place: Place, operator: Operator, control_plane: ControlPlaneFixture
) -> None:
    other = Place(control_plane, "Art")
    mine, theirs = place.dataset(None), other.dataset(None)
    operator.types("move", "--all", "--catalog", "art")
    assert set(states(control_plane)) == {theirs}
    operator.types("move", "--all", "--workspace", place.workspace)
    assert set(states(control_plane)) == {mine, theirs}


def test_a_dry_run_shows_and_writes_nothing(place: Place, database: str) -> None:
    place.datasets(2)
    ended = Operator(database).types("move", "--all", "--dry-run")
    assert ended.code == 0
    assert "2 datasets can move" in ended.out
    assert "Dry run: nothing was ordered." in ended.out
    assert states(place.control_plane) == {}


def test_a_few_by_id_however_they_are_typed(place: Place, operator: Operator) -> None:
    one, two, three, four, _ = place.datasets(5)
    ended = operator.types("move", "--dataset", one.upper(), two, "--dataset", f"{three},{four}")
    assert ended.code == 0
    assert set(states(place.control_plane)) == {one, two, three, four}


def test_an_unknown_id_stops_everything(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    for unknown in (UNKNOWN, "no-id"):
        ended = operator.types("move", "--dataset", dataset, unknown)
        assert ended.code == 1
        assert ended.one_line == f"reroot: no such dataset: {unknown}; nothing was done (reroot plan lists all)"
    assert states(place.control_plane) == {}


def test_what_was_asked_for_by_id_and_cannot_move_is_a_failure(place: Place, operator: Operator) -> None:
    dataset, homeless = place.dataset(None), place.dataset(None, schema=None)
    ended = operator.types("move", "--dataset", dataset, homeless)
    assert ended.code == 1
    assert f"{homeless}: no_schema" in ended.out
    assert states(place.control_plane) == {dataset: "queued"}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--all", "--dataset", UNKNOWN],
        ["--dataset", UNKNOWN, "--limit", "3"],
        ["--dataset", UNKNOWN, "--catalog", "x"],
        [UNKNOWN],
        ["--all", UNKNOWN],
        ["--all", "--limit", "0"],
        ["--all", "--nonsense"],
    ],
)
def test_a_wrong_command_is_one_line_and_exit_2(operator: Operator, arguments: list[str]) -> None:
    ended = operator.types("move", *arguments)
    assert ended.code == 2
    assert ended.one_line.startswith("reroot: ")


def test_what_was_taken_back_moves_only_when_asked_to(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    ledger.flip(place.control_plane, dataset)
    ledger.finish(place.control_plane, dataset)
    ledger.take_back(place.control_plane, dataset)
    ended = operator.types("move", "--all")
    assert (ended.code, states(place.control_plane)) == (1, {dataset: "done"})
    assert "reverted 1" in ended.one_line
    claim_before = place.control_plane.execute("SELECT claim FROM reroot.moves")[0][0]
    assert operator.types("move", "--all", "--again").code == 0
    row = place.control_plane.execute(
        "SELECT state, direction, claim, flipped_at, done_at, table_uuid, published_at IS NOT NULL FROM reroot.moves"
    )[0]
    assert row == ("queued", "out", claim_before + 1, None, None, None, True)
    event = place.control_plane.execute(
        "SELECT transition, from_state, to_state, claim FROM reroot.move_events ORDER BY id DESC LIMIT 1"
    )[0]
    assert event == ("i", "done", "queued", claim_before + 1)


def test_again_leaves_a_row_alone_that_has_moved_on_since_it_was_read(place: Place, database: str) -> None:
    dataset = place.dataset(None)
    row = PlannedRow(dataset, place.workspace, "datasets.x", "x", "sales.europe", claim=None)
    with connect(database, role="test") as connection:
        assert enqueue(connection, [row]) == 1
        place.control_plane.execute("UPDATE reroot.moves SET state = 'done', direction = 'back', claim = 5")
        stale = PlannedRow(dataset, place.workspace, "datasets.x", "x", "sales.europe", claim=4)
        assert enqueue(connection, [stale]) == 0
    assert states(place.control_plane) == {dataset: "done"}


def test_every_event_that_is_written_is_a_legal_transition(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    operator.types("move", "--all")
    ledger.park(place.control_plane, dataset)
    operator.types("retry", dataset)
    rows = place.control_plane.execute(
        "SELECT from_state, to_state FROM reroot.move_events WHERE transition IS NOT NULL"
    )
    assert len(rows) == 2
    assert {(source and State(source), State(target)) for source, target in rows} <= LEGAL


def test_two_who_order_the_same_at_once_order_it_once(place: Place, database: str) -> None:
    names = [f"{number:06d}" for number in range(4000)]  # so many that the batches certainly meet
    rows = [PlannedRow(name, place.workspace, f"datasets.{name}", name, "sales.europe", claim=None) for name in names]

    def order(batch: list[PlannedRow]) -> int:
        with connect(database, role="test") as connection:
            return enqueue(connection, batch)

    with ThreadPoolExecutor(4) as pool:
        planned = list(pool.map(order, [rows, rows[::-1], rows, rows[::-1]]))
    assert sum(planned) == len(names)
    assert place.control_plane.execute("SELECT count(*) FROM reroot.move_events") == [(len(names),)]


def test_what_was_written_before_a_failure_stays_and_the_next_call_goes_on(
    place: Place, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = place.datasets(5)
    monkeypatch.setattr(publish, "CHUNK", 2)
    written = iter([enqueue, enqueue])

    def fails_the_third_time(connection: Connection, rows: list[PlannedRow]) -> int:
        write = next(written, None)
        if write is None:
            raise ControlPlaneAwayError("cut off")
        return write(connection, rows)

    with monkeypatch.context() as patch:
        patch.setattr(publish, "enqueue", fails_the_third_time)
        ended = operator.types("move", "--all")
    assert (ended.code, ended.one_line) == (3, "reroot: Postgres cannot be reached: cut off (REROOT_DATABASE_URL)")
    assert set(states(place.control_plane)) == set(datasets[:4])
    assert "1 move ordered." in operator.types("move", "--all").out
    assert set(states(place.control_plane)) == set(datasets)


def test_at_most_a_window_of_messages_is_published(place: Place, database: str, valkey: str) -> None:
    place.datasets(5)
    operator = Operator(database, valkey, REROOT_QUEUE_WINDOW="2")
    assert operator.types("move", "--all").code == 0
    assert queued_messages(valkey) == 2
    published = place.control_plane.execute("SELECT count(*) FROM reroot.moves WHERE published_at IS NOT NULL")
    assert published == [(2,)]


def test_with_the_broker_away_the_ledger_has_the_jobs(place: Place, database: str) -> None:
    dataset = place.dataset(None)
    ended = Operator(database, NOWHERE).types("move", "--all")
    assert ended.code == 3
    assert "the broker cannot be reached" in ended.one_line
    assert "sweepers will publish" in ended.one_line
    assert place.control_plane.execute("SELECT dataset_id, state, published_at FROM reroot.moves") == [
        (dataset, "queued", None)
    ]


def test_without_a_broker_in_the_settings_nothing_is_written(place: Place, database: str) -> None:
    place.dataset(None)
    operator = Operator(database)
    del operator.settings["REROOT_BROKER_URL"]
    ended = operator.types("move", "--all")
    assert (ended.code, states(place.control_plane)) == (2, {})
    assert "REROOT_BROKER_URL" in ended.one_line


def test_that_no_worker_listens_is_said_at_once(place: Place, operator: Operator) -> None:
    place.datasets(2)
    ledger.worker_alive(place.control_plane, seconds_ago=120)
    assert "No worker listens on queue moves" in operator.types("move", "--all", "--limit", "1").err
    place.control_plane.execute("DELETE FROM reroot.workers")
    ledger.worker_alive(place.control_plane)
    assert operator.types("move", "--all").err == ""


def moves_when_ordered(place: Place, *, parked: frozenset[str] = frozenset()) -> threading.Thread:
    """A worker of sorts: whatever is queued flips, or is parked."""

    def work() -> None:
        wait_until(lambda: bool(states(place.control_plane)), seconds=20, what="something is ordered")
        for dataset in states(place.control_plane):
            if dataset in parked:
                ledger.park(place.control_plane, dataset)
            else:
                ledger.flip(place.control_plane, dataset)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_canary_ends_with_both_names_and_the_figures(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    ledger.worker_alive(place.control_plane)
    worker = moves_when_ordered(place)
    ended = operator.types("move", "--dataset", dataset, "--wait")
    worker.join()
    assert (ended.code, ended.err) == (0, "")
    name = "ds_" + dataset.replace("-", "")
    assert "flipped 1 in" in ended.out
    assert f"old name  datasets.{name}  (until the grace ends, in 14 min)" in ended.out
    assert f"new name  sales.europe.{name}" in ended.out
    assert f"uuid      {ledger.UUID}" in ended.out
    assert "snapshot  11 before, 11 after" in ended.out
    assert "rows      7 before, 7 after" in ended.out
    assert "Next: reroot move --all --limit 100 --wait" in ended.out


def test_a_wait_with_something_parked_fails_and_names_it(place: Place, operator: Operator) -> None:
    good, bad = place.datasets(2)
    ledger.worker_alive(place.control_plane)
    worker = moves_when_ordered(place, parked=frozenset({bad}))
    ended = operator.types("move", "--all", "--wait")
    worker.join()
    assert ended.code == 1
    assert "flipped 1, parked 1 in" in ended.out
    assert f"{bad}  name_taken: another table has the name" in ended.out
    assert good not in ended.out


def test_waiting_again_for_what_is_queued_already(place: Place, operator: Operator) -> None:
    datasets = place.datasets(2)
    operator.types("move", "--all")
    for dataset in datasets:
        ledger.flip(place.control_plane, dataset) if dataset == datasets[0] else None
    worker = threading.Timer(0.2, lambda: ledger.flip(place.control_plane, datasets[1]))
    worker.start()
    ended = operator.types("move", "--all", "--wait")
    worker.join()
    assert ended.code == 0
    assert "flipped 1 in" in ended.out


def asks_the_ledger(control_plane: ControlPlaneFixture) -> bool:
    """Whether a producer's last question was the one of a wait."""
    return bool(
        control_plane.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'reroot-producer' AND starts_with(query, 'SELECT given.id, m.state')"
        )
    )


def test_ctrl_c_leaves_the_jobs_and_says_how_to_come_back(place: Place, operator: Operator) -> None:
    dataset = place.dataset(None)
    ledger.worker_alive(place.control_plane)
    with operator.started("move", "--all", "--wait") as process:
        wait_until(lambda: states(place.control_plane) == {dataset: "queued"}, seconds=30, what="it is ordered")
        wait_until(lambda: asks_the_ledger(place.control_plane), seconds=30, what="it waits")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err.count("\n") == 1
    assert states(place.control_plane) == {dataset: "queued"}
    assert "status --watch" in err
