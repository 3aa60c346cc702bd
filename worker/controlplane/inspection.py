"""What Postgres is asked in an inspection: its version, the way to it, the lock, the schema; which workers it has seen.

Responsible for: these questions and what their answers mean for the jobs.
Must not know: how a check is shown, the settings.

Nothing is written. The lock that is tried lies in a key space that no dataset's lock uses.
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Final

from worker.controlplane.connection import (
    AddressRefusedError,
    Connection,
    ControlPlaneAwayError,
    ControlPlaneError,
    connect,
    through_pooler,
    translated,
)
from worker.controlplane.election import CLASS
from worker.controlplane.workers import ALIVE_SECONDS, FORGET_SECONDS
from worker.inspection import Findings, skewed
from worker.messages import Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.inspection import Check

_PROBE: Final = 2
"""The second integer of the lock that is tried; the first is the election's."""
_TRIES: Final = 5
"""Connections that are opened to see whether a pooler hands one server process to several."""
_OLDEST: Final = 140000
_MIGRATION_URL: Final = "set REROOT_MIGRATION_URL to an address of Postgres itself"
_TURNED_AWAY: Final = re.compile(
    r'authentication failed|no password supplied|no pg_hba\.conf entry|role ".*" (does not exist|is not permitted)'
)


def inspect_postgres(url: str, direct_url: str | None) -> list[Check]:
    """The checks. ``direct_url`` is the way past a pooler, None where none is set."""
    findings = Findings("postgres")
    try:
        with closing(connect(url, role="doctor")) as connection:
            _version(findings, connection)
            _clock(findings, connection)
            _way(findings, connection, url, direct_url)
            _defaults(findings, connection)
            _lock(findings, connection, url)
        _schema(findings, direct_url or url)
    except ControlPlaneAwayError as error:
        findings.red("reach", str(error), _remedy(str(error)), away=True)
    except AddressRefusedError as error:
        findings.red("reach", str(error), "write the address anew: postgresql://user:password@host:5432/name")
    except ControlPlaneError as error:
        findings.red("reach", str(error), "see what the role in REROOT_DATABASE_URL may do")
    return findings.checks


def _remedy(says: str) -> str:
    """What helps where no connection came about: a server that turns a login away has answered."""
    if _TURNED_AWAY.search(says):
        return "Postgres answers: see the user and the password in REROOT_DATABASE_URL, and the server's pg_hba.conf"
    return "see that Postgres runs, and REROOT_DATABASE_URL"


def inspect_workers(connection: Connection) -> list[Check]:
    """Which queues somebody listens to. Raises ControlPlaneError."""
    findings = Findings("workers")
    with translated():
        rows: Any = connection.execute(_WORKERS, {"alive": ALIVE_SECONDS}).fetchall()
    seen = {queue: (alive, slots, ago) for queue, alive, slots, ago in rows}
    for queue in Queue:
        alive, slots, ago = seen.get(queue.value, (0, 0, None))
        if alive:
            findings.green(queue.value, f"{alive} alive, {slots} processes")
        elif ago is not None:
            start = f"celery -A worker.app worker -Q {queue.value}"
            findings.yellow(queue.value, f"none alive; the last was seen {ago:.0f} s ago", f"start one: {start}")
        elif queue is Queue.MOVES:
            start = f"celery -A worker.app worker -Q {queue.value}"
            findings.yellow(queue.value, f"none seen in the last {FORGET_SECONDS // 3600} h", f"start one: {start}")
    return findings.checks


def warehouses_in_use(connection: Connection, warehouse_for: Callable[[str], str]) -> list[str]:
    """The warehouses of workspaces that have datasets, each once. Raises ControlPlaneError."""
    with translated():
        rows: Any = connection.execute(_WORKSPACES).fetchall()
    return sorted({own or warehouse_for(workspace) for workspace, own in rows})


def _version(findings: Findings, connection: Connection) -> None:
    number = connection.info.server_version
    if number < _OLDEST:
        findings.red("version", f"Postgres {number // 10000}", "Postgres 14 or newer is needed")
    else:
        findings.green("version", f"Postgres {number // 10000}.{number % 10000}")
    if _one(connection, "SELECT pg_is_in_recovery()"):
        findings.red("role", "a replica, which takes no writes", "let REROOT_DATABASE_URL lead to the primary")


def _clock(findings: Findings, connection: Connection) -> None:
    before = time.time()
    theirs: float = _one(connection, "SELECT extract(epoch FROM clock_timestamp())::float8")
    # Everything that waits, waits by Postgres' own clock.
    skewed(findings, "its clock", theirs - (before + time.time()) / 2, harmless=True)


def _way(findings: Findings, connection: Connection, url: str, direct_url: str | None) -> None:
    if not through_pooler(connection):
        findings.green("way", "direct")
        return
    mode = _pooler_mode(connection, url)
    if direct_url is None or direct_url == url:
        says = f"{mode}, and no direct way is set: migrations are refused, and new jobs are noticed later"
        findings.yellow("way", says, _MIGRATION_URL)
        return
    with closing(connect(direct_url, role="doctor")) as other:
        if through_pooler(other):
            findings.yellow("way", f"{mode}, and REROOT_MIGRATION_URL leads to a pooler too", _MIGRATION_URL)
        else:
            findings.green("way", f"{mode}, and a direct one for migrations and LISTEN")


def _defaults(findings: Findings, connection: Connection) -> None:
    """What a session sets for itself where it may; behind a pooler single statements run under these."""
    isolation: str = _one(connection, "SHOW default_transaction_isolation")
    if isolation != "read committed":
        says = f"behind the pooler, default_transaction_isolation is {isolation}: attempts may fail and run again"
        findings.yellow("defaults", says, "ALTER ROLE … SET default_transaction_isolation = 'read committed'")


def _pooler_mode(connection: Connection, url: str) -> str:
    """Whether the server process that served a client between two transactions may serve another meanwhile."""
    mine = _one(connection, "SELECT pg_backend_pid()")
    with ExitStack() as opened:
        for _ in range(_TRIES):
            other = opened.enter_context(closing(connect(url, role="doctor")))
            opened.enter_context(other.transaction())
            if _one(other, "SELECT pg_backend_pid()") == mine:
                return "through a pooler in transaction mode"
    return "through a pooler in session mode"


def _lock(findings: Findings, connection: Connection, url: str) -> None:
    """The lock that keeps writers and workers apart must be one and the same for both, whatever lies between."""
    attempt = f"SELECT pg_try_advisory_xact_lock({CLASS}, {_PROBE})"
    with closing(connect(url, role="doctor")) as other:
        with connection.transaction():
            held, twice = _one(connection, attempt), _one(other, attempt)
        free = _one(other, attempt)
    if not held:
        findings.yellow("lock", "another doctor holds the lock that is tried", "run it again")
    elif twice or not free:
        says = "two connections do not see each other's advisory locks: writers and workers would collide"
        findings.red("lock", says, "let REROOT_DATABASE_URL lead to one server, past whatever spreads connections")
    else:
        findings.green("lock", "advisory locks keep two connections apart")


def _schema(findings: Findings, url: str) -> None:
    # Late: Alembic and SQLAlchemy weigh more than everything else that is asked.
    from worker.controlplane import migrate  # noqa: PLC0415 - see the line above

    problems = migrate.check(url)
    for problem in problems:
        says, _, helps = problem.rpartition(": ")
        findings.red("schema", says, helps)
    if not problems:
        findings.green("schema", f"whole, at revision {migrate.head()}")


def _one(connection: Connection, statement: str) -> Any:
    with translated():
        row: Any = connection.execute(statement.encode()).fetchone()
    return row[0]


_WORKERS: Final = """
SELECT queue, count(*) FILTER (WHERE seen_at > now() - make_interval(secs => %(alive)s)),
       coalesce(sum(concurrency) FILTER (WHERE seen_at > now() - make_interval(secs => %(alive)s)), 0),
       extract(epoch FROM now() - max(seen_at))::float8
FROM reroot.workers, unnest(queues) AS queue
GROUP BY queue
"""

_WORKSPACES: Final = """
SELECT w.id::text, t.warehouse
FROM workspaces w
LEFT JOIN reroot.tenants t ON t.workspace_id = w.id::text
WHERE EXISTS (SELECT FROM datasets d WHERE d.workspace_id = w.id)
"""
