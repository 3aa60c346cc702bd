"""Tasks in a real worker on a real broker: how each outcome shows, and that nothing a job does ends the worker."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from demo.processes import wait_until
from demo.services import Valkey
from tests.support.broker import Broker
from tests.support.worker_process import WorkerProcess, worker_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PASSWORD = "not-to-be-read"
NO_DATABASE = f"postgresql://app:{PASSWORD}@127.0.0.1:1/control"
QUICK = {
    "REROOT_CATALOG_TIMEOUT_SECONDS": "0.5",
    "REROOT_MOVE_DEADLINE_SECONDS": "1",
    "REROOT_SOFT_TIME_LIMIT_SECONDS": "2",
    "REROOT_TIME_LIMIT_SECONDS": "20",
}


@pytest.fixture(scope="module")
def own_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server.url()


@pytest.fixture(scope="module")
def worker(own_valkey: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """One worker for all: the odd jobs need no control plane, and there is none."""
    folder = tmp_path_factory.mktemp("worker")
    settings = worker_settings(NO_DATABASE, own_valkey, folder / "lake", **QUICK)
    with WorkerProcess(folder, settings, app="tests.support.odd_tasks") as process:
        yield process


@pytest.fixture
def broker(worker: WorkerProcess, own_valkey: str) -> Iterator[Broker]:
    with Broker(own_valkey) as seen:
        yield seen


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    return tmp_path / "marks"


def runs(marks: Path) -> int:
    return len(marks.read_text().splitlines()) if marks.exists() else 0


def settled(broker: Broker) -> None:
    wait_until(broker.empty, seconds=30, what="no message is left")


SHOWN = [
    ("done", "task-succeeded", "'flipped'"),
    ("ignored", "task-succeeded", "'ignored: nothing is due'"),
    ("busy", "task-retried", "Later('busy: the lock is held')"),
    ("wait", "task-retried", "Later('wait: warehouse lake is away')"),
    ("retry", "task-retried", "Later('retry: no answer from http://u:********@host')"),
    ("park", "task-failed", "Parked('refused: http://u:********@host said no')"),
]


def test_each_outcome_shows_once_and_leaves_no_message_behind(broker: Broker, marks: Path) -> None:
    sent = {name: broker.send("odd.outcome", str(marks), name) for name, _, _ in SHOWN}
    for name, kind, text in SHOWN:
        event = broker.event(sent[name], kind)
        assert event["result" if kind == "task-succeeded" else "exception"] == text
        assert f"'{name}'" in broker.event(sent[name], "task-received")["args"]
    settled(broker)
    assert runs(marks) == len(SHOWN)
    for name, kind, _ in SHOWN:
        # The publisher's own event goes another way and may arrive last.
        kinds = [each for each in broker.of(sent[name]) if each != "task-sent"]
        assert kinds.count("task-started") == 1
        assert kinds[-1] == kind
    assert "hunter2" not in str(broker.events)


def test_running_out_of_memory_or_leaving_fails_the_job_and_not_the_worker(
    worker: WorkerProcess, broker: Broker, tmp_path: Path
) -> None:
    before = worker.pid
    memory = [broker.send("odd.memory", str(tmp_path / "memory")) for _ in range(3)]
    leaving = [broker.send("odd.exit", str(tmp_path / "exit")) for _ in range(3)]
    for task in memory:
        assert "MemoryError('no memory left')" in broker.event(task, "task-failed")["exception"]
    for task in leaving:
        assert "SystemExit(3)" in broker.event(task, "task-failed")["exception"]
    last = broker.send("odd.outcome", str(tmp_path / "marks"), "done")
    broker.event(last, "task-succeeded")
    settled(broker)
    assert worker.alive()
    assert worker.pid == before
    assert (runs(tmp_path / "memory"), runs(tmp_path / "exit")) == (3, 3)


def test_a_job_that_overruns_its_soft_limit_ends_and_comes_again_by_the_ledger(broker: Broker, marks: Path) -> None:
    task = broker.send("odd.sleep", str(marks), 60)
    assert "soft time limit" in broker.event(task, "task-retried")["exception"]
    settled(broker)
    assert runs(marks) == 1


def test_the_message_of_a_killed_process_is_delivered_again(broker: Broker, marks: Path) -> None:
    task = broker.send("odd.killed", str(marks))
    broker.event(task, "task-succeeded")
    settled(broker)
    assert runs(marks) == 2


def test_a_job_that_a_shutdown_cuts_off_keeps_its_message(valkey: str, tmp_path: Path, marks: Path) -> None:
    settings = worker_settings(NO_DATABASE, valkey, tmp_path / "lake")
    with WorkerProcess(tmp_path, settings, app="tests.support.odd_tasks", concurrency=1) as worker:
        broker = Broker(valkey)
        broker.send("odd.sleep", str(marks), 60)
        wait_until(lambda: runs(marks) == 1, seconds=30, what="the job runs")
        worker.send(signal.SIGQUIT)
        wait_until(lambda: not worker.alive(), seconds=60, what="the worker ends")
        assert broker.waiting() + broker.out() == 1
        worker.start()
        wait_until(lambda: runs(marks) == 2, seconds=60, what="the job runs again")
        settled(broker)


def test_no_secret_is_logged(worker: WorkerProcess, broker: Broker, marks: Path) -> None:
    broker.event(broker.send("odd.outcome", str(marks), "park"), "task-failed")
    wait_until(lambda: "refused" in worker.text(), seconds=10, what="the outcome is logged")
    assert "127.0.0.1" in worker.text(), "what could not be reached is named"
    assert PASSWORD not in worker.text()
    assert "hunter2" not in worker.text()
