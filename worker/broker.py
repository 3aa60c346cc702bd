"""What the broker is asked in an inspection: whether it keeps messages, and whether it would throw any away.

Responsible for: these questions and what their answers mean for the jobs.
Must not know: Celery, how messages look. Nothing is written.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import redis

from worker.inspection import Findings
from worker.messages import Queue
from worker.settings_check import masked_url

if TYPE_CHECKING:
    from worker.inspection import Check

_PATIENCE: Final = 5.0
_NO_WRITES: Final = frozenset({"slave", "replica"})


def inspect_broker(url: str, *, visibility_seconds: float, longest_job_seconds: float) -> list[Check]:
    """The checks. ``longest_job_seconds`` is after how long a job's process is killed."""
    findings = Findings("broker")
    patience = {"socket_timeout": _PATIENCE, "socket_connect_timeout": _PATIENCE}
    try:
        with closing(redis.Redis.from_url(url, decode_responses=True, **patience)) as client:
            told: Any = client.info()
            _version(findings, told)
            _persistence(findings, told, client)
            _eviction(findings, told)
            _visibility(findings, visibility_seconds, longest_job_seconds)
            _waiting(findings, client)
    except (redis.RedisError, OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        refused = isinstance(error, redis.AuthenticationError | redis.ResponseError)
        says = masked_url(f"{url} does not answer: {reason}" if not refused else f"{url} refuses: {reason}")
        findings.red("reach", says, "see that the broker runs, and REROOT_BROKER_URL", away=not refused)
    return findings.checks


def _version(findings: Findings, told: dict[str, Any]) -> None:
    valkey = told.get("valkey_version")
    name, version = ("Valkey", valkey) if valkey else ("Redis", told.get("redis_version", "of unknown version"))
    findings.green("version", f"{name} {version}")
    if told.get("role") in _NO_WRITES:
        findings.red("role", "a replica, which takes no writes", "let REROOT_BROKER_URL lead to the primary")


def _persistence(findings: Findings, told: dict[str, Any], client: redis.Redis) -> None:
    if told.get("aof_enabled"):
        if told.get("aof_last_write_status", "ok") != "ok":
            findings.red("persistence", "the last write of its append-only file failed", "give the broker disk space")
            return
        findings.green("persistence", "an append-only file")
        return
    says = "snapshots only" if _snapshots(client) else "none"
    findings.yellow(
        "persistence",
        f"{says}: messages are forgotten at a restart, and sent again from the ledger a while later",
        "appendonly yes",
    )


def _snapshots(client: redis.Redis) -> bool:
    try:
        told: Any = client.config_get("save")
    except redis.ResponseError:
        return False  # a managed broker does not show its configuration
    return bool(told.get("save"))


def _eviction(findings: Findings, told: dict[str, Any]) -> None:
    policy, limit = str(told.get("maxmemory_policy", "unknown")), int(told.get("maxmemory", 0))
    if policy.startswith("allkeys"):
        says = f"maxmemory-policy {policy}: under memory pressure whole queues are thrown away"
        remedy = "maxmemory-policy noeviction"
        if limit:
            findings.red("eviction", says, remedy)
        else:
            findings.yellow("eviction", f"{says}; no maxmemory is set yet", remedy)
    else:
        findings.green("eviction", f"maxmemory-policy {policy}: no queue is thrown away")


def _visibility(findings: Findings, visibility: float, longest: float) -> None:
    says = f"a message comes again after {visibility:g} s, a job is killed after {longest:g} s"
    if visibility <= longest:
        findings.red("redelivery", says, "let REROOT_VISIBILITY_TIMEOUT_SECONDS be well above the time limit")
    else:
        findings.green("redelivery", says)


def _waiting(findings: Findings, client: redis.Redis) -> None:
    depths: list[str] = []
    for queue in Queue:
        length: Any = client.llen(queue.value)
        if length:
            depths.append(f"{length:,} in {queue.value}")
    findings.green("messages", ", ".join(depths) + " waiting" if depths else "none waiting")
