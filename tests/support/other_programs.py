"""Other programs on the same database, at the same time.

Responsible for: sessions that a test holds open, work that goes on in a thread meanwhile, and waiting until Postgres
itself says that a session is stuck.
Must not know: what Reroot does.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from demo.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

Session = psycopg.Connection[tuple[Any, ...]]


def session(url: str, *, name: str = "another program", autocommit: bool = True) -> Session:
    """A session of another program. A statement that is stuck for a minute is ended, so that the test is."""
    return psycopg.connect(
        url, autocommit=autocommit, application_name=name, options="-c statement_timeout=60s -c lock_timeout=60s"
    )


def in_background(work: Callable[[], T]) -> Future[T]:
    """Run ``work`` in a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test reads it from the future
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Do ``work`` over and over while the block runs; the first error of it fails the test."""
    over = Event()

    def repeat() -> int:
        rounds = 0
        while not over.is_set():
            work()
            rounds += 1
        return rounds

    future = in_background(repeat)
    try:
        yield
    finally:
        over.set()
        rounds = future.result(timeout=60)
    assert rounds > 0


def until_stuck(watcher: Session, stuck: Session) -> None:
    """Wait until a statement of the session ``stuck`` is running (and, since it has not answered, waiting)."""
    pid = stuck.info.backend_pid

    def running() -> bool:
        row = watcher.execute("SELECT state = 'active' FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone()
        return bool(row and row[0])

    wait_until(running, seconds=30, what="the other session's statement is running")


def rows(connection: Session, query: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    return connection.execute(query.encode(), parameters or None).fetchall()


def value(connection: Session, query: str, parameters: tuple[Any, ...] = ()) -> Any:
    """The one value of a query of one row."""
    ((result,),) = rows(connection, query, parameters)
    return result
