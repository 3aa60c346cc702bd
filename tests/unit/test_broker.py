"""What ``doctor`` says of brokers that the embedded one cannot be made into: a replica, a full disk, a managed one."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from fakeredis import FakeRedis

from worker.broker import inspect_broker

SOUND = {"redis_version": "7.4.1", "role": "master", "aof_enabled": 1, "maxmemory_policy": "noeviction"}


class Told(FakeRedis):
    """A broker whose INFO is given. Like many a managed one, it refuses CONFIG."""

    told: dict[str, Any]

    def info(self, *_: Any, **__: Any) -> dict[str, Any]:
        return self.told


def findings(monkeypatch: pytest.MonkeyPatch, waiting: int = 0, **told: Any) -> dict[str, tuple[str, str]]:
    """The level and the text of each check."""
    broker = Told(decode_responses=True)
    broker.told = SOUND | told
    for number in range(waiting):
        broker.lpush("moves", str(number))
    monkeypatch.setattr(redis.Redis, "from_url", lambda *_, **__: broker)
    checks = inspect_broker("redis://broker", visibility_seconds=3600, longest_job_seconds=900)
    return {check.name: (check.level, check.says) for check in checks}


@pytest.mark.parametrize(
    ("name", "told", "level", "says"),
    [
        ("version", {}, "green", "Redis 7.4.1"),
        ("version", {"valkey_version": "9.1.2"}, "green", "Valkey 9.1.2"),
        ("role", {"role": "slave"}, "red", "a replica, which takes no writes"),
        ("persistence", {}, "green", "an append-only file"),
        ("persistence", {"aof_last_write_status": "err"}, "red", "the last write of its append-only file failed"),
        ("persistence", {"aof_enabled": 0}, "yellow", "none: messages are forgotten"),
        ("eviction", {"maxmemory_policy": "allkeys-lru"}, "yellow", "whole queues are thrown away"),
        ("eviction", {"maxmemory_policy": "allkeys-lru", "maxmemory": 1}, "red", "whole queues are thrown away"),
        ("messages", {}, "green", "none waiting"),
    ],
)
def test_each_state_of_a_broker_has_its_level(
    monkeypatch: pytest.MonkeyPatch, name: str, told: dict[str, Any], level: str, says: str
) -> None:
    found = findings(monkeypatch, **told)
    assert found[name][0] == level
    assert says in found[name][1]


def test_messages_are_counted_by_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(monkeypatch, waiting=3)["messages"] == ("green", "3 in moves waiting")
