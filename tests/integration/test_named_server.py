"""An operator runs the contract against a server of their own: what is asked, what is shown, and what is left there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.contract.remote import named_server
from tests.support.rest_double import TEMPERAMENTS, Kind, RestDouble

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = "tests/contract/test_catalog_contract.py"
TOKEN = "let-me-in"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestDouble]:
    with RestDouble(TEMPERAMENTS["lakekeeper-main"], tokens=frozenset({TOKEN})) as double:
        double.make_warehouse("staging", f"file://{tmp_path}/warehouse")
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
