"""Celery's settings: each exists, says what it was chosen for, and follows the installation's limits."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from celery.app.defaults import NAMESPACES, flatten
from kombu.transport import redis as redis_transport

from tests.support.celery_app import NOWHERE, configured_app

ROOT = Path(__file__).parents[2]


def configuration(**environment: str) -> dict[str, Any]:
    """The module's settings, as Celery reads them, in this environment."""
    with mock.patch.dict(os.environ, NOWHERE | environment, clear=True):  # noqa: TID251 - a test sets what the settings read
        names = runpy.run_path(str(ROOT / "celeryconfig.py"))
    return {name: value for name, value in names.items() if name.islower() and not name.startswith("_")}


def test_every_setting_is_one_that_celery_knows() -> None:
    known = {name for name, _ in flatten(NAMESPACES)}
    imported = {"sys", "load_settings"}
    assert {name for name in configuration() if name not in known} == imported


def test_every_transport_option_is_one_that_the_transport_knows() -> None:
    options = configuration()["broker_transport_options"]
    assert [name for name in options if not hasattr(redis_transport.Channel, name)] == []


def test_a_message_can_be_neither_lost_by_an_end_nor_kept_by_one() -> None:
    chosen = configuration()
    on = ("task_acks_late", "task_reject_on_worker_lost", "task_acks_on_failure", "task_acks_on_timeout")
    assert [chosen[name] for name in on] == [True] * 4
    assert chosen["worker_cancel_long_running_tasks_on_connection_loss"] is False
    assert chosen["broker_connection_max_retries"] is None
    assert "result_backend" not in chosen
    assert "task_acks_on_failure_or_timeout" not in chosen


def test_the_limits_are_the_installations() -> None:
    chosen = configuration(
        REROOT_SOFT_TIME_LIMIT_SECONDS="100",
        REROOT_TIME_LIMIT_SECONDS="200",
        REROOT_VISIBILITY_TIMEOUT_SECONDS="400",
    )
    assert (chosen["task_soft_time_limit"], chosen["task_time_limit"]) == (100, 200)
    assert chosen["broker_transport_options"]["visibility_timeout"] == 400


def test_only_json_is_read_and_written() -> None:
    chosen = configuration()
    assert {chosen[f"{kind}_serializer"] for kind in ("task", "result", "event")} == {"json"}
    assert chosen["accept_content"] == chosen["result_accept_content"] == ["json"]


def test_messages_can_be_published_in_batches() -> None:
    """A transport option that asks for retries would silently turn the pipelined publishing off."""
    options = configuration()["broker_transport_options"]
    assert not {"retry_on_timeout", "retry"} & set(options)


def test_the_app_reads_this_configuration() -> None:
    # The app is one per process: which broker it was first configured for is another test's business.
    conf = configured_app().conf
    for name, value in configuration().items():
        if name not in {"sys", "load_settings", "task_queues", "broker_url"}:
            assert conf[name] == value, name


MISSPELT = NOWHERE | {"REROOT_GRACE_SECOND": "5"}
TEXTS = {
    "broker": "REROOT_BROKER_URL is not set: the broker, redis://host:6379/0",
    "misspelt": "REROOT_GRACE_SECOND is not a setting: did you mean REROOT_GRACE_SECONDS?",
    "database": "REROOT_DATABASE_URL is not set: the control plane's Postgres, postgresql://user@host/name",
    "catalog": "REROOT_CATALOG_URI is not set: where the catalog is served",
    "warehouse": "REROOT_WAREHOUSE (one for all) or REROOT_WAREHOUSE_TEMPLATE (such as w_{workspace_hex}) must be set",
}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, ["broker"]),
        (MISSPELT, ["misspelt"]),
        (NOWHERE, ["database", "catalog", "warehouse"]),
        (NOWHERE | {"REROOT_DATABASE_URL": "postgresql://h/d", "REROOT_WAREHOUSE": "w"}, ["catalog"]),
    ],
)
def test_a_worker_with_settings_that_cannot_work_says_so_line_by_line(
    environment: dict[str, str], said: list[str]
) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "worker.app", "worker", "-Q", "moves"]
    plain = {"PATH": os.environ["PATH"]}  # noqa: TID251 - a process of our own
    ended = subprocess.run(
        command, cwd=ROOT, env=plain | environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.strip().splitlines() == [TEXTS[name] for name in said]
