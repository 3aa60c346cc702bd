"""The sweeper: rounds that find everything, one sweeper at a time, and no life beyond its worker's."""

from __future__ import annotations

import os
import signal
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest

from demo.processes import wait_until
from tests.support.broker import Broker
from tests.support.doorbell_double import DoorbellDouble
from tests.support.processes import descendants, still_running
from tests.support.sweeper_process import SweeperProcess
from tests.support.worker_process import WorkerProcess, worker_settings
from worker.controlplane.connection import connect
from worker.controlplane.election import CLASS, SWEEP
from worker.controlplane.topup import Work, wake
from worker.controlplane.workers import alive
from worker.messages import Queue
from worker.settings import load_settings
from worker.sweeper import Round, Sweeper, pause

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from demo.services import Postgres, Valkey
    from tests.support.controlplane import ControlPlaneFixture


def planned(control_plane: ControlPlaneFixture, count: int = 1) -> list[str]:
    ids = [str(uuid.uuid4()) for _ in range(count)]
    for dataset in ids:
        control_plane.execute(
            "INSERT INTO reroot.moves (dataset_id, workspace_id, source_identifier, table_name, target_namespace)"
            " VALUES (%s, 'w', 'datasets.t', 't', 'a.b')",
            (dataset,),
        )
    return ids


@pytest.fixture
def sweeper(database: str, valkey: str, tmp_path: Path) -> Iterator[Sweeper]:
    settings = load_settings(worker_settings(database, valkey, tmp_path))
    made = Sweeper(settings, "one@test", [Queue.MOVES], 3, DoorbellDouble())
    yield made
    made.close()


def test_the_pause_is_the_interval_or_less_where_something_is_due_or_flows() -> None:
    assert pause(15, Round()) == 15
    assert pause(15, Round(sent=3)) == 2
    assert pause(15, Round(work=Work(due_in=7))) == 7
    assert pause(15, Round(sent=3, work=Work(due_in=1.5))) == 1.5
    assert pause(15, Round(work=Work(due_in=0.01))) == 1
    assert pause(15, Round(work=Work(now=True))) == 5, "an attempt may run, and leave a rename open"
    assert pause(15, Round(work=Work(now=True, due_in=7))) == 5
    assert pause(0.2, Round()) == 1


def test_a_round_publishes_and_notes_its_worker(sweeper: Sweeper, control_plane: ControlPlaneFixture) -> None:
    ids = planned(control_plane, 3)
    [[before]] = control_plane.execute("SELECT clock_timestamp()")
    assert sweeper.round() == Round(sent=3, work=Work(now=True))
    assert set(sweeper.doorbell.sent) == set(ids)  # type: ignore[attr-defined]  # the double
    rows = control_plane.execute("SELECT worker, queues, concurrency, seen_at, clock_timestamp() FROM reroot.workers")
    assert [row[:3] for row in rows] == [("one@test", ["moves"], 3)]
    assert before <= rows[0][3] <= rows[0][4]
    assert sweeper.round() == Round(work=Work(now=True))
    control_plane.execute("UPDATE reroot.moves SET state = 'done'")
    assert sweeper.round() == Round()


def test_who_loses_the_election_publishes_nothing_and_is_alive(
    sweeper: Sweeper, control_plane: ControlPlaneFixture, database: str
) -> None:
    planned(control_plane, 3)
    with psycopg.connect(database) as winner:
        winner.execute("SELECT pg_advisory_xact_lock(%s, %s)", (CLASS, SWEEP))
        assert sweeper.round() == Round(work=Work(now=True), lost=True)
        assert pause(15, Round(lost=True)) == 2
        assert control_plane.execute("SELECT count(*) FROM reroot.workers") == [(1,)]
    assert sweeper.round().sent == 3


def test_a_winner_that_never_ends_is_stood_in_for(
    sweeper: Sweeper, control_plane: ControlPlaneFixture, database: str
) -> None:
    """Its backend may stand still, and then nothing ends its transaction."""
    planned(control_plane, 3)
    sweeper.longest_round = 0
    with psycopg.connect(database) as winner:
        winner.execute("SELECT pg_advisory_xact_lock(%s, %s)", (CLASS, SWEEP))
        assert [sweeper.round().sent, sweeper.round().sent] == [0, 3]
        planned(control_plane)
        assert sweeper.round().sent == 1
    sweeper.round()
    with psycopg.connect(database) as winner:
        winner.execute("SELECT pg_advisory_xact_lock(%s, %s)", (CLASS, SWEEP))
        planned(control_plane)
        assert sweeper.round().sent == 0, "it has won since"


def test_the_election_leaves_the_datasets_keys_alone(
    sweeper: Sweeper, control_plane: ControlPlaneFixture, database: str
) -> None:
    """A one-integer lock with the same bits belongs to some dataset, and does not stop the sweeper."""
    planned(control_plane)
    with psycopg.connect(database) as writer:
        writer.execute("SELECT pg_advisory_xact_lock((%s::bigint << 32) | %s)", (CLASS, SWEEP))
        assert sweeper.round().sent == 1


def test_a_broker_that_is_away_costs_a_round_and_no_row(sweeper: Sweeper, control_plane: ControlPlaneFixture) -> None:
    ids = planned(control_plane, 3)
    doorbell = sweeper.doorbell
    assert isinstance(doorbell, DoorbellDouble)
    doorbell.breaks_after = 0
    assert sweeper.round().sent == 0
    doorbell.breaks_after = None
    assert sweeper.round().sent == 3
    assert sorted(doorbell.sent) == sorted(ids)


def test_a_postgres_that_is_away_costs_a_round(
    sweeper: Sweeper, control_plane: ControlPlaneFixture, postgres_server: Postgres
) -> None:
    planned(control_plane)
    sweeper.round()
    postgres_server.restart(immediate=True)
    rounds = [sweeper.round() for _ in range(2)]
    assert rounds[0] == Round(), "the connections were lost"
    with connect(sweeper.settings.database(), role="test") as connection:
        assert alive(connection, Queue.MOVES) == 1


def test_a_worker_on_other_queues_is_not_counted(sweeper: Sweeper, database: str) -> None:
    sweeper.round()
    with connect(database, role="test") as connection:
        assert (alive(connection, Queue.MOVES), alive(connection, Queue.BIRTHS)) == (1, 0)
        connection.execute("UPDATE reroot.workers SET seen_at = now() - interval '61 seconds'")
        assert alive(connection, Queue.MOVES) == 0
        sweeper.round()
        assert alive(connection, Queue.MOVES) == 1
        sweeper.leave()
        assert alive(connection, Queue.MOVES) == 0


def test_a_notify_ends_the_pause_and_the_end_of_the_lifeline_ends_everything(sweeper: Sweeper, database: str) -> None:
    reading, writing = os.pipe()
    sweeper.round()
    with connect(database, role="test") as connection:
        wake(connection)
    assert sweeper.wait(3600, reading), "it would have paused for an hour"
    os.close(writing)
    assert not sweeper.wait(3600, reading)
    os.close(reading)


@pytest.mark.parametrize("direct", [True, False], ids=["direct_known", "direct_unknown"])
def test_behind_a_pooler_rounds_go_on_and_calls_are_heard_where_the_direct_way_is_known(
    pooled_database: str,
    database: str,
    valkey: str,
    control_plane: ControlPlaneFixture,
    tmp_path: Path,
    *,
    direct: bool,
) -> None:
    more = {"REROOT_MIGRATION_URL": database} if direct else {}
    sweeper = Sweeper(
        load_settings(worker_settings(pooled_database, valkey, tmp_path, **more)),
        "one@test",
        [Queue.MOVES],
        1,
        DoorbellDouble(),
    )
    reading, writing = os.pipe()
    try:
        for count in range(3):
            planned(control_plane, count)
            assert sweeper.round().sent == count
        if direct:
            control_plane.execute("NOTIFY reroot_due")
            assert sweeper.wait(3600, reading)
    finally:
        sweeper.close()
        os.close(reading)
        os.close(writing)


SLOW = {"REROOT_SWEEP_INTERVAL_SECONDS": "3600"}


def test_a_sweeper_process_wakes_on_notify_and_ends_with_its_lifeline(
    database: str, valkey: str, control_plane: ControlPlaneFixture, tmp_path: Path
) -> None:
    settings = worker_settings(database, valkey, tmp_path, **SLOW)
    broker = Broker(valkey)
    with SweeperProcess(tmp_path, settings) as process:
        wait_until(
            lambda: control_plane.execute("SELECT count(*) FROM reroot.workers") == [(1,)],
            seconds=30, what="its first round",
        )  # fmt: skip
        planned(control_plane, 2)
        control_plane.execute("NOTIFY reroot_due")
        wait_until(lambda: broker.waiting() == 2, seconds=30, what="it publishes at once")
        assert process.let_go() == 0
    assert control_plane.execute("SELECT count(*) FROM reroot.workers") == [(0,)]


def test_a_sweeper_process_outlasts_postgres_and_the_broker(
    database: str, valkey: str, control_plane: ControlPlaneFixture, postgres_server: Postgres, valkey_server: Valkey,
    tmp_path: Path,
) -> None:  # fmt: skip
    broker = Broker(valkey)
    with SweeperProcess(tmp_path, worker_settings(database, valkey, tmp_path)) as process:
        planned(control_plane)
        wait_until(lambda: broker.waiting() == 1, seconds=30, what="it publishes")
        postgres_server.restart(immediate=True)
        valkey_server.kill()
        wait_until(
            lambda: "broker does not answer" in process.text() or not process.alive(), seconds=30, what="it notices"
        )
        valkey_server.start()
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("UPDATE reroot.moves SET published_at = NULL")
        wait_until(lambda: Broker(valkey).waiting() >= 1, seconds=30, what="it publishes again")
        assert process.alive()
        password = urlsplit(database).password
        assert password
        assert password not in process.text()


@contextmanager
def standing_still(control_plane: ControlPlaneFixture, database: str) -> Iterator[None]:
    """Every backend that a sweeper of this database has, stopped as by a debugger or a frozen machine."""
    name = urlsplit(database).path.removeprefix("/")
    backends = control_plane.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'reroot-sweeper' AND datname = %s", (name,)
    )
    assert backends
    for (pid,) in backends:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for (pid,) in backends:
            os.kill(pid, signal.SIGCONT)


def test_a_round_on_a_postgres_that_stands_still_ends_with_its_process_and_another_goes_on(
    database: str, valkey: str, control_plane: ControlPlaneFixture, tmp_path: Path
) -> None:
    """Its kernel acknowledges what is sent, so that no timeout of a connection ends the wait."""
    settings = worker_settings(database, valkey, tmp_path)
    broker = Broker(valkey)
    with SweeperProcess(tmp_path, settings, longest_round=2) as process:
        wait_until(
            lambda: control_plane.execute("SELECT count(*) FROM reroot.workers") == [(1,)],
            seconds=30, what="its first round",
        )  # fmt: skip
        # Perhaps in the middle of a round, with the election's lock held.
        with standing_still(control_plane, database):
            assert process.wait() == -signal.SIGALRM
            planned(control_plane, 2)
            with SweeperProcess(tmp_path, settings, longest_round=2):
                wait_until(lambda: broker.waiting() == 2, seconds=30, what="another one publishes")


def test_a_sweeper_goes_on_where_postgres_stood_still_for_less_than_a_round(
    database: str, valkey: str, control_plane: ControlPlaneFixture, tmp_path: Path
) -> None:
    broker = Broker(valkey)
    with SweeperProcess(tmp_path, worker_settings(database, valkey, tmp_path)) as process:
        wait_until(
            lambda: control_plane.execute("SELECT count(*) FROM reroot.workers") == [(1,)],
            seconds=30, what="its first round",
        )  # fmt: skip
        with standing_still(control_plane, database):
            planned(control_plane, 2)
        wait_until(lambda: broker.waiting() == 2, seconds=30, what="it publishes")
        assert process.alive()


def test_two_sweepers_send_each_row_once(
    database: str, valkey: str, control_plane: ControlPlaneFixture, tmp_path: Path
) -> None:
    broker = Broker(valkey)
    settings = worker_settings(database, valkey, tmp_path)
    (tmp_path / "other").mkdir()
    with SweeperProcess(tmp_path, settings, "a@test"), SweeperProcess(tmp_path / "other", settings, "b@test"):
        ids = planned(control_plane, 40)
        wait_until(
            lambda: control_plane.execute("SELECT count(*) FROM reroot.workers") == [(2,)],
            seconds=30, what="both are there",
        )  # fmt: skip
        control_plane.execute("NOTIFY reroot_due")
        wait_until(lambda: broker.waiting() >= len(ids), seconds=30, what="everything is published")
        assert broker.waiting() == len(ids)


class TestBesideAWorker:
    def test_it_lives_and_ends_with_its_worker(
        self, database: str, valkey: str, control_plane: ControlPlaneFixture, tmp_path: Path
    ) -> None:
        with WorkerProcess(tmp_path, worker_settings(database, valkey, tmp_path)) as worker:
            wait_until(lambda: self.noted(control_plane, worker), seconds=30, what="the worker is noted")
            (pid,) = [known.pid for known in descendants(worker.pid) if "worker.sweeper" in known.command]
            os.kill(pid, signal.SIGKILL)
            control_plane.execute("DELETE FROM reroot.workers")
            wait_until(lambda: self.noted(control_plane, worker), seconds=60, what="another sweeper is there")
            family = descendants(worker.pid)
            assert worker.stop() == 0
            assert still_running(family) == set()
        assert not self.noted(control_plane, worker)

    def test_it_does_not_outlive_a_killed_worker(
        self, database: str, valkey: str, control_plane: ControlPlaneFixture, tmp_path: Path
    ) -> None:
        with WorkerProcess(tmp_path, worker_settings(database, valkey, tmp_path)) as worker:
            wait_until(lambda: self.noted(control_plane, worker), seconds=30, what="the worker is noted")
            family = descendants(worker.pid)
            assert any("worker.sweeper" in known.command for known in family)
            worker.kill()
            wait_until(lambda: not still_running(family), seconds=30, what="nothing of the worker is left")

    @staticmethod
    def noted(control_plane: ControlPlaneFixture, worker: WorkerProcess) -> bool:
        return bool(control_plane.execute("SELECT 1 FROM reroot.workers WHERE worker = %s", (worker.name,)))
