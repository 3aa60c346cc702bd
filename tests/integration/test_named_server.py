"""An operator runs the contract against a server of their own: what is asked, what is shown, and what is left there."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.contract.remote import named_server
from tests.support.fault_proxy import FaultProxy, Rule, refuse
from tests.support.rest_double import TEMPERAMENTS, Kind, RestDouble
from worker.identifiers import QUARANTINE_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = "tests/contract/test_catalog_contract.py"
NAMES = "tests/contract/test_names.py"
TOKEN = "let-me-in"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestDouble]:
    with staged("lakekeeper-main", tmp_path) as double:
        double.tokens = frozenset({TOKEN})
        yield double


@contextmanager
def staged(temperament: str, folder: Path, *, soft_delete: bool = False) -> Iterator[RestDouble]:
    """A server with one warehouse, ``staging``."""
    with RestDouble(TEMPERAMENTS[temperament]) as double:
        double.make_warehouse("staging", f"file://{folder}/warehouse", soft_delete=soft_delete)
        yield double


def asked(server: RestDouble, *which: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The contract's run, in a process of its own."""
    named = {"URL": server.uri, "WAREHOUSE": "staging", "KIND": "lakekeeper-main", "AUTH": "token", "TOKEN": TOKEN}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REROOT_")}  # noqa: TID251 - the environment of a process to start
    told = {f"REROOT_TEST_CATALOG_{name}": value for name, value in {**named, **variables}.items()}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", CONTRACT, *which]
    return subprocess.run(
        command, cwd=ROOT, env={**inherited, **told}, capture_output=True, text=True, timeout=110, check=False
    )


def test_the_results_are_a_table_and_nothing_stays_on_the_server(server: RestDouble, tmp_path: Path) -> None:
    ended = asked(server, "-k", "TestRename or TestRegister or test_missing_namespace")
    assert ended.returncode == 0, ended.stdout
    assert "| named lakekeeper-main | 15 | 11 | 4 | 0 | 0 |" in ended.stdout
    assert "| rename: across levels keeps the table | kept |  |" in ended.stdout
    assert "| register: twice | not by its nature | Lakekeeper keeps one name for each uuid" in ended.stdout
    assert TOKEN not in ended.stdout + ended.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    made = server.count(Kind.CREATE_NAMESPACE, status=200)
    assert made > 0
    assert server.count(Kind.DROP_NAMESPACE, status=204) == made
    assert not server.failures


@pytest.mark.parametrize(
    ("temperament", "soft_delete"),
    [
        ("lakekeeper-main", True),
        ("gravitino-1.2-authorization", False),
        ("gravitino-1.2", False),
        ("gravitino-1.3", False),
    ],
)
def test_each_kind_keeps_its_promises_and_keeps_nothing_of_the_run(
    temperament: str, soft_delete: bool, tmp_path: Path
) -> None:
    with staged(temperament, tmp_path, soft_delete=soft_delete) as server:
        ended = asked(server, NAMES, KIND=temperament, AUTH="none", TOKEN="")
        assert ended.returncode == 0, ended.stdout
        warehouse = server.warehouse("staging")
        assert warehouse.below(()) in ([], [(QUARANTINE_NAMESPACE,)])
        assert list(warehouse.rows()) == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_namespace_that_the_server_does_not_let_go_is_named(tmp_path: Path) -> None:
    with staged("correct", tmp_path) as server, FaultProxy(server.uri) as proxy:
        proxy.add(Rule(Kind.DROP_NAMESPACE, refuse(409, error_type="NamespaceNotEmptyException"), times=None))
        ended = asked(server, "-k", "test_missing_table", URL=proxy.uri, KIND="other", AUTH="none", TOKEN="")
        stay = [".".join(levels) for levels in server.warehouse("staging").below(())]
    assert ended.returncode == 0, ended.stdout
    assert f"left on the server, drop them by hand: {', '.join(stay)}\n" in ended.stdout


def test_a_promise_that_is_broken_says_how(server: RestDouble) -> None:
    # Said to be what it is not: a catalog in which two names may hold one table.
    ended = asked(server, "-k", "test_twice", KIND="reference")
    assert ended.returncode == 1
    assert "| register: twice | broken | " in ended.stdout


def test_a_kind_that_there_is_not_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REROOT_TEST_CATALOG_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("REROOT_TEST_CATALOG_KIND", "lakekeper")
    with pytest.raises(pytest.fail.Exception, match="KIND=lakekeper: should be one of "):
        named_server()


def test_every_variable_is_a_setting_of_the_same_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        "URL": "https://catalog.example/iceberg",
        "WAREHOUSE": "staging",
        "AUTH": "oauth2",
        "CLIENT_ID": "reroot",
        "CLIENT_SECRET": "s",
        "OAUTH2_TOKEN_URL": "https://login.example/token",
        "OAUTH2_SCOPE": "catalog",
        "PROPERTIES": '{"s3.region": "auto"}',
        "TIMEOUT_SECONDS": "30",
    }
    for name, value in told.items():
        monkeypatch.setenv(f"REROOT_TEST_CATALOG_{name}", value)
    connection, warehouse, kind = named_server()
    assert (warehouse, kind, connection.auth, connection.timeout_seconds) == ("staging", "other", "oauth2", 30.0)
    assert connection.properties["s3.region"].get_secret_value() == "auto"
