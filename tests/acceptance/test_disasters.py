"""Real workers, a real broker, real tables, and what goes wrong in a data centre: the work is done all the same."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import psycopg
import pytest
import redis

from demo.processes import wait_until
from demo.services import Postgres, Valkey
from tests.support.controlplane import ControlPlaneFixture
from tests.support.fleet import WAREHOUSE, Fleet
from tests.support.processes import Known, descendants, still_running
from tests.support.worker_process import WorkerProcess, worker_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def fleet(database: str, control_plane: ControlPlaneFixture, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(database, tmp_path / "warehouse", control_plane)
    yield fleet
    fleet.catalog.close()


def settings(fleet: Fleet, broker: str, **more: str) -> dict[str, str]:
    return worker_settings(fleet.database, broker, fleet.folder, REROOT_WAREHOUSE=WAREHOUSE, **more)


def messages_sent(fleet: Fleet, broker: str) -> int:
    """Messages that wait now; nothing may be published for ever."""
    client = redis.Redis.from_url(broker)
    try:
        return int(client.llen("moves")) + int(client.hlen("unacked"))
    finally:
        client.close()


@pytest.mark.parametrize("call", ["catalog.register", "lock.flip", "catalog.rename", "catalog.drop"])
def test_a_child_killed_after_a_call_is_finished_by_another(
    fleet: Fleet, valkey: str, tmp_path: Path, call: str
) -> None:
    chosen = fleet.make(3, queued=False)[0]
    marker = tmp_path / "died"
    crash = f"{chosen} {call} {marker}"
    with WorkerProcess(tmp_path, settings(fleet, valkey, REROOT_TEST_CRASH=crash), app="tests.support.mortal_tasks"):
        fleet.queue(fleet.datasets)
        fleet.wait_for("done")
    assert marker.exists()
    fleet.check_all_done()


def test_the_queue_lost_in_the_middle_is_filled_again_and_emptied(fleet: Fleet, valkey: str, tmp_path: Path) -> None:
    fleet.make(40)
    client = redis.Redis.from_url(valkey)
    with WorkerProcess(tmp_path, settings(fleet, valkey)) as worker:
        fleet.wait_for("flipped", count=1)
        lost = int(client.llen("moves"))
        client.delete("moves")
        fleet.wait_for("done", seconds=120)
        wait_until(lambda: messages_sent(fleet, valkey) == 0, seconds=30, what="no message is left")
        received = worker.text().count("received")
    client.close()
    fleet.check_all_done()
    # Two attempts each, those that were lost once more, and a little for attempts that found nothing due.
    assert received <= 2 * 40 + lost + 20


def test_postgres_restarts_under_the_work(valkey: str, tmp_path: Path) -> None:
    from worker.controlplane import migrate  # noqa: PLC0415 - Alembic takes its time

    with ExitStack() as stack:
        postgres = stack.enter_context(Postgres(tmp_path / "postgres"))
        url = postgres.create_database("reroot")
        migrate.upgrade(url, with_baseline=True)
        plane = ControlPlaneFixture(url)
        fleet = Fleet(url, tmp_path / "warehouse", plane)
        fleet.make(30)
        stack.enter_context(WorkerProcess(tmp_path, settings(fleet, valkey)))
        for count in (5, 15):
            wait_until(partial(moved_at_least, url, count), seconds=60, what=f"{count} moved")
            plane.close()
            postgres.restart(immediate=True)
            plane = fleet.plane = ControlPlaneFixture(url)
            fleet.catalog.engine.dispose()  # type: ignore[attr-defined]  # it is an SqlCatalog
        fleet.wait_for("done", seconds=150)
        fleet.check_all_done()
        fleet.catalog.close()
        plane.close()


def moved_at_least(url: str, count: int) -> bool:
    """Whether so many moves have been flipped so far, asked on a connection of its own."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM reroot.moves WHERE flipped_at IS NOT NULL").fetchone()
    return row is not None and row[0] >= count


def test_the_broker_is_killed_and_comes_back_empty(fleet: Fleet, tmp_path: Path) -> None:
    with Valkey(tmp_path / "broker", append_only=False) as broker:
        fleet.make(30)
        with WorkerProcess(tmp_path, settings(fleet, broker.url())):
            fleet.wait_for("flipped", count=3)
            broker.kill()
            broker.start()
            fleet.wait_for("done", seconds=150)
    fleet.check_all_done()


def pool_of(worker: WorkerProcess) -> set[Known]:
    """The worker's processes that do the jobs."""
    return {one for one in descendants(worker.pid) if "worker.sweeper" not in one.command}


def test_processes_that_are_just_starting_do_not_outlive_a_killed_worker(
    fleet: Fleet, valkey: str, tmp_path: Path
) -> None:
    """Two of them hold one another's pipes open: neither would ever see that nobody is left to send it a job."""
    late = tmp_path / "late"
    with WorkerProcess(
        tmp_path, settings(fleet, valkey, REROOT_TEST_LATE=str(late)), app="tests.support.late_tasks"
    ) as worker:
        pool = pool_of(worker)
        late.touch()
        for one in pool:
            os.kill(one.pid, signal.SIGKILL)
        wait_until(lambda: len(pool_of(worker) - pool) == len(pool) >= 2, seconds=30, what="others take their place")
        everything = descendants(worker.pid)
        worker.kill()
        wait_until(lambda: not still_running(everything), seconds=20, what="every process of the worker is gone")


def test_a_pooler_in_transaction_mode_stands_between(
    fleet: Fleet, pooled_database: str, valkey: str, tmp_path: Path
) -> None:
    fleet.make(20)
    pooled = settings(fleet, valkey, REROOT_DATABASE_URL=pooled_database, REROOT_MIGRATION_URL=fleet.database)
    with WorkerProcess(tmp_path, pooled):
        fleet.wait_for("done")
    fleet.check_all_done()


def test_another_programs_ddl_does_not_queue_behind_a_job(fleet: Fleet, valkey: str, tmp_path: Path) -> None:
    """A waiting ALTER TABLE would hold up every query on the table: it must find the table free, again and again."""
    fleet.make(30)
    altered = 0
    with (
        WorkerProcess(tmp_path, settings(fleet, valkey)),
        psycopg.connect(fleet.database, autocommit=True) as other,
    ):
        other.execute("SET lock_timeout = '2s'")
        while fleet.states().get("done", 0) < 30:
            other.execute(f"ALTER TABLE datasets ALTER COLUMN name SET DEFAULT 'unnamed {altered}'")
            other.execute("SELECT pg_sleep(0.02)")
            altered += 1
    assert altered > 3
    fleet.check_all_done()


class Stubborn:
    """Writers of the control plane that queue for one dataset's lock without end."""

    def __init__(self, url: str, dataset: str, *, writers: int) -> None:
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(url, dataset)) for _ in range(writers)]

    def _write(self, url: str, dataset: str) -> None:
        with psycopg.connect(url) as connection:
            while not self._over.is_set():
                connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (dataset,))
                connection.execute("SELECT pg_sleep(0.3)")
                connection.commit()

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def test_writers_that_queue_for_the_lock_without_end_do_not_starve_a_move(
    fleet: Fleet, valkey: str, tmp_path: Path
) -> None:
    [dataset] = fleet.make(1, queued=False)
    with Stubborn(fleet.database, dataset, writers=2), WorkerProcess(tmp_path, settings(fleet, valkey)):
        fleet.queue([dataset])
        fleet.wait_for("flipped", seconds=120)
        attempts = fleet.plane.execute("SELECT attempts FROM reroot.moves")
    assert attempts == [(0,)]
    busy = fleet.plane.execute("SELECT count(*) > 0 FROM reroot.moves WHERE claim >= 1")
    assert busy == [(True,)]


def test_writers_through_the_resolver_lose_nothing(fleet: Fleet, valkey: str, tmp_path: Path) -> None:
    """Programs of the control plane append to every table, under its lock, while it moves and while it retires."""
    fleet.make(10, queued=False)
    written = dict.fromkeys(fleet.datasets, 0)
    with WorkerProcess(tmp_path, settings(fleet, valkey)):
        fleet.queue(fleet.datasets)
        while fleet.states().get("done", 0) + fleet.states().get("parked", 0) < len(fleet.datasets):
            for dataset in fleet.datasets:
                fleet.append(dataset)
                written[dataset] += 1
    fleet.check_all_done()
    assert {dataset: fleet.rows(dataset) for dataset in fleet.datasets} == {
        dataset: 10 + 5 * count for dataset, count in written.items()
    }
