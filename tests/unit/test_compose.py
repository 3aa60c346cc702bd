"""No container engine runs where this is built: what the compose file says is held against the code instead."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from celery.bin.celery import celery
from flower.views.tasks import visible_task_columns

from demo.stack import FLOWER_COLUMNS
from producer.commands import run
from worker.messages import Queue
from worker.settings import VARIABLES, load_settings

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = compose["services"]
    return loaded


def ours(services: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: service for name, service in services.items() if service["image"] == "reroot"}


def test_the_stack_has_what_the_readme_promises(services: dict[str, dict[str, Any]]) -> None:
    assert {"postgres", "redis", "catalog", "worker", "flower", "migrate", "reroot"} <= set(services)


def test_every_variable_of_ours_is_a_setting_and_all_together_are_valid(services: dict[str, dict[str, Any]]) -> None:
    for name, service in ours(services).items():
        given = {key: value for key, value in service["environment"].items() if key.startswith("REROOT_")}
        assert set(given) <= VARIABLES, name
        settings = load_settings(given)
        assert settings.broker()
        assert settings.catalog()
        assert settings.warehouse_for("any")


def test_addresses_name_services_and_their_ports(services: dict[str, dict[str, Any]]) -> None:
    for service in ours(services).values():
        for key in ("REROOT_DATABASE_URL", "REROOT_BROKER_URL", "REROOT_CATALOG_URI"):
            found = re.search(r"(?:@|//)([a-z]+):(\d+)", service["environment"][key])
            assert found, key
            host, port = found.groups()
            assert any(published.endswith(f":{port}") for published in services[host]["ports"]), key


def test_the_database_is_the_one_that_postgres_makes(services: dict[str, dict[str, Any]]) -> None:
    made = services["postgres"]["environment"]
    address = f"{made['POSTGRES_USER']}:{made['POSTGRES_PASSWORD']}@postgres:5432/{made['POSTGRES_DB']}"
    assert services["worker"]["environment"]["REROOT_DATABASE_URL"].endswith(address)


@pytest.mark.parametrize("name", ["worker", "flower"])
def test_celery_finds_the_app(services: dict[str, dict[str, Any]], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = services[name]
    assert service["entrypoint"] == ["celery"]
    command = service["command"]
    for key, value in service["environment"].items():
        monkeypatch.setenv(key, value)
    module = command[command.index("-A") + 1]
    assert importlib.import_module(module).app.main == "reroot"
    from_plugins = {entry.name for entry in entry_points(group="celery.commands")}
    assert command[command.index("-A") + 2] == name
    assert name in {*celery.commands, *from_plugins}


def test_flower_lists_the_dataset_and_the_outcome(services: dict[str, dict[str, Any]]) -> None:
    columns = services["flower"]["environment"]["FLOWER_TASKS_COLUMNS"]
    assert columns == FLOWER_COLUMNS
    assert [name for name, _ in visible_task_columns(columns)] == columns.split(",")
    assert {"args", "state", "result", "exception"} <= set(columns.split(","))


def test_the_worker_consumes_queues_that_exist(services: dict[str, dict[str, Any]]) -> None:
    command = services["worker"]["command"]
    queues = command[command.index("-Q") + 1].split(",")
    assert queues
    assert set(queues) <= {queue.value for queue in Queue}
    assert int(command[command.index("-c") + 1]) >= 1
    last = json.loads(DOCKERFILE.rpartition("CMD ")[2])
    assert last[last.index("-Q") + 1] in {queue.value for queue in Queue}


@pytest.mark.parametrize("name", ["migrate", "reroot"])
def test_commands_of_ours_exist(
    services: dict[str, dict[str, Any]], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    service = services[name]
    assert service["entrypoint"] == ["reroot"]
    options = [word for word in service["command"] if word.startswith("--")]
    words = [word for word in service["command"] if not word.startswith("--")]
    assert run([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    for option in options:
        assert option in shown


def test_redis_keeps_messages(services: dict[str, dict[str, Any]]) -> None:
    command = services["redis"]["command"]
    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"


def test_whatever_is_published_listens_on_loopback(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        for published in service.get("ports", []):
            assert published.startswith("127.0.0.1:")


def test_what_is_depended_on_and_mounted_is_declared(
    compose: dict[str, Any], services: dict[str, dict[str, Any]]
) -> None:
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= set(services), name
        assert {volume.partition(":")[0] for volume in service.get("volumes", [])} <= set(compose["volumes"]), name
        for other, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other], other


def test_the_image_is_built_from_files_that_are_there_and_let_in() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[0] == "!"}
    copied = [word for line in re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()]
    assert "pyproject.toml" in copied
    for name in copied:
        assert (ROOT / name).exists(), name
        assert name in let_in, name


def test_the_image_carries_what_the_wheel_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], project["project"]["readme"], "LICENSE"}
    assert all(name in DOCKERFILE for name in needed)
    floor = tuple(int(part) for part in project["project"]["requires-python"].removeprefix(">=").split("."))
    for version in re.findall(r"^FROM python:(\d+)\.(\d+)", DOCKERFILE, re.MULTILINE):
        assert tuple(int(part) for part in version) >= floor
