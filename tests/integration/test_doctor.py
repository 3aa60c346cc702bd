"""``reroot doctor`` on Postgres and the broker, sound ones and others: one line that says what helps."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from demo.services import Valkey
from tests.support.doctor import TABLE, TOKEN, WAREHOUSE, Installation, examined
from tests.support.operator import NOWHERE
from tests.support.rest_double import Kind
from worker.controlplane import inspection
from worker.controlplane.connection import ControlPlaneAwayError, connect
from worker.controlplane.election import CLASS
from worker.controlplane.migrations.steps import here

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.controlplane import ControlPlaneFixture


class TestHealthy:
    @pytest.mark.parametrize("arguments", [(), ("--probe",), ("--warehouse", WAREHOUSE)])
    def test_everything_is_green(self, installation: Installation, arguments: tuple[str, ...]) -> None:
        found = examined(installation.operator(), *arguments)
        assert found.at("yellow") | found.at("red") == set(), found.ended.out
        assert (found.ended.code, found.document["level"], found.document["not_asked"]) == (0, "green", 0)

    def test_without_a_probe_nothing_is_written(self, installation: Installation) -> None:
        installation.double.seen.clear()
        examined(installation.operator())
        assert {seen.method for seen in installation.double.seen} == {"GET"}

    def test_nothing_of_the_probe_is_left(self, installation: Installation) -> None:
        before = {path for path in installation.folder.rglob("*") if "data" not in path.parts}
        found = examined(installation.operator(), "--probe")
        assert found.one("warehouse", "clearing")["level"] == "green"
        assert {path for path in installation.folder.rglob("*") if "data" not in path.parts} == before
        assert all("purgeRequested=false" in seen.target for seen in installation.double.seen if seen.kind is Kind.DROP)
        assert installation.double.row(WAREHOUSE, TABLE) is not None

    def test_a_probe_says_that_it_shows_no_rights_on_tables_of_others(self, installation: Installation) -> None:
        check = examined(installation.operator(), "--probe").one("warehouse", "rights")
        assert check["level"] == "green"
        assert "a table that this worker made itself" in str(check["says"])
        assert "tables of other owners" in str(check["says"])

    def test_the_text_says_the_same_and_no_secret(self, installation: Installation) -> None:
        ended = installation.operator().types("doctor", "--probe")
        assert ended.code == 0
        assert ended.err == ""
        headings = [line for line in ended.out.splitlines() if line and not line.startswith(" ")]
        assert headings[:-1] == ["postgres", "broker", "workers", f"warehouse {WAREHOUSE}"]
        assert headings[-1].endswith(" green")
        assert TOKEN not in ended.out

    def test_every_warehouse_in_use_is_asked_and_no_more_than_a_few(
        self, installation: Installation, control_plane: ControlPlaneFixture
    ) -> None:
        for _ in range(12):
            workspace = control_plane.workspace()
            control_plane.dataset(workspace, control_plane.schema(control_plane.catalog(workspace, "a"), "b"))
        control_plane.execute("INSERT INTO reroot.tenants SELECT id::text, 'w_1' FROM workspaces ORDER BY id LIMIT 1")
        template = installation.operator(REROOT_WAREHOUSE="", REROOT_WAREHOUSE_TEMPLATE="x_{workspace_hex}")
        found = examined(template)
        assert len({check["system"] for check in found.checks if check["system"].startswith("warehouse")}) == 10
        assert found.one("warehouse w_1", "reading")["level"] == "green"
        assert found.document["not_asked"] == 2
        assert "2 more warehouses were not asked: reroot doctor --warehouse NAME" in template.types("doctor").out


class TestPostgres:
    def test_away(self, installation: Installation) -> None:
        installation.database = "postgresql://app:hush-hush@127.0.0.1:1/nothing"
        found = examined(installation.operator())
        assert found.ended.code == 3
        assert found.at("red") == {"postgres reach"}
        assert "warehouse reading" in found.at("green")
        assert "hush-hush" not in found.ended.out

    @pytest.mark.parametrize(
        "says",
        [
            'connection to server at "h", port 5432 failed: FATAL:  password authentication failed for user "app"',
            'connection failed: FATAL:  no pg_hba.conf entry for host "::1", user "app", database "d", no encryption',
            'connection failed: FATAL:  role "app" does not exist',
        ],
    )
    def test_a_login_that_is_turned_away(
        self, installation: Installation, monkeypatch: pytest.MonkeyPatch, says: str
    ) -> None:
        def refused(*_: object, **__: object) -> None:
            raise ControlPlaneAwayError(says)

        monkeypatch.setattr(inspection, "connect", refused)
        found = examined(installation.operator())
        assert found.ended.code == 3
        remedy = found.one("postgres", "reach")["remedy"]
        assert "the user and the password in REROOT_DATABASE_URL" in remedy
        assert "Postgres runs" not in remedy

    def test_a_role_that_is_not_there(self, installation: Installation) -> None:
        address = urlsplit(installation.database)
        installation.database = address._replace(netloc=f"nobody:x@{address.netloc.rpartition('@')[2]}").geturl()
        remedy = examined(installation.operator()).one("postgres", "reach")["remedy"]
        assert "the user and the password in REROOT_DATABASE_URL" in remedy

    @pytest.mark.parametrize("address", ["postgresql://127.0.0.1:1/nothing", ""])
    def test_without_postgres_nothing_is_said_of_datasets(self, installation: Installation, address: str) -> None:
        installation.database = address
        template = {"REROOT_WAREHOUSE": "", "REROOT_WAREHOUSE_TEMPLATE": "x_{workspace_hex}"}
        found = examined(installation.operator(**template))
        assert "no workspace has a dataset" not in found.ended.out
        assert found.one("catalog", "warehouses")["says"] == "not known: Postgres could not be asked"

    def test_not_migrated(self, installation: Installation, empty_database: str) -> None:
        installation.database = empty_database
        with psycopg.connect(empty_database) as connection:
            connection.execute(here("baseline.sql").read_bytes())
        found = examined(installation.operator())
        assert found.ended.code == 1
        assert found.at("red") == {"postgres schema"}
        assert found.one("postgres", "schema")["remedy"] == "reroot db upgrade"

    def test_behind_a_pooler_without_a_direct_way(self, installation: Installation, pooled_database: str) -> None:
        direct, installation.database = installation.database, pooled_database
        check = examined(installation.operator()).one("postgres", "way")
        assert check["level"] == "yellow"
        assert check["says"].startswith("through a pooler in transaction mode, and no direct way is set")
        assert "REROOT_MIGRATION_URL" in check["remedy"]
        mended = examined(installation.operator(REROOT_MIGRATION_URL=direct)).one("postgres", "way")
        assert mended["level"] == "green"

    def test_another_isolation_as_a_default_matters_behind_a_pooler_alone(
        self, installation: Installation, pooled_database: str
    ) -> None:
        name = urlsplit(installation.database).path.removeprefix("/")
        with psycopg.connect(installation.database, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'".encode())
        assert "postgres defaults" not in examined(installation.operator()).at("yellow")
        installation.database = pooled_database
        check = examined(installation.operator()).one("postgres", "defaults")
        assert check["level"] == "yellow"
        assert "is serializable" in check["says"]

    def test_a_lock_that_two_connections_do_not_share(
        self, installation: Installation, empty_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # As behind something that spreads connections over servers: each has advisory locks of its own.
        addresses = iter([installation.database, empty_database])
        monkeypatch.setattr(inspection, "connect", lambda _, role: connect(next(addresses), role=role))
        found = examined(installation.operator())
        assert found.one("postgres", "lock")["level"] == "red"
        assert found.ended.code == 1

    def test_a_lock_that_somebody_tries_at_the_same_time(self, installation: Installation) -> None:
        with psycopg.connect(installation.database) as connection:
            connection.execute(f"SELECT pg_advisory_xact_lock({CLASS}, {inspection._PROBE})")
            assert examined(installation.operator()).one("postgres", "lock")["level"] == "yellow"
            connection.rollback()

    def test_no_worker(self, installation: Installation, control_plane: ControlPlaneFixture) -> None:
        control_plane.execute("UPDATE reroot.workers SET seen_at = now() - interval '1 hour'")
        check = examined(installation.operator()).one("workers", "moves")
        assert check["level"] == "yellow"
        assert check["says"].startswith("none alive; the last was seen 36")
        control_plane.execute("DELETE FROM reroot.workers")
        check = examined(installation.operator()).one("workers", "moves")
        assert check["remedy"] == "start one: celery -A worker.app worker -Q moves"


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[Valkey]:
    """A broker that a test may spoil."""
    with Valkey(tmp_path / "own") as server:
        yield server


class TestBroker:
    def test_away(self, installation: Installation) -> None:
        installation.broker = NOWHERE
        found = examined(installation.operator())
        assert found.ended.code == 3
        assert found.at("red") == {"broker reach"}

    def test_not_set(self, installation: Installation) -> None:
        installation.broker = ""
        operator = installation.operator()
        del operator.settings["REROOT_BROKER_URL"]
        found = examined(operator)
        assert found.ended.code == 1
        assert "REROOT_BROKER_URL is not set" in found.one("broker", "settings")["says"]

    def test_that_throws_queues_away_and_forgets(self, installation: Installation, own_valkey: Valkey) -> None:
        installation.broker = own_valkey.url()
        with closing(redis.Redis.from_url(own_valkey.url())) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
            assert examined(installation.operator()).one("broker", "eviction")["level"] == "yellow"
            client.config_set("maxmemory", "100mb")
            client.config_set("appendonly", "no")
            client.config_set("save", "")
            found = examined(installation.operator())
        assert found.at("red") == {"broker eviction"}
        assert found.one("broker", "eviction")["remedy"] == "maxmemory-policy noeviction"
        assert found.one("broker", "persistence")["says"].startswith("none: messages are forgotten")
        assert found.ended.code == 1

    def test_a_wrong_password_is_not_shown(self, installation: Installation, own_valkey: Valkey) -> None:
        installation.broker = own_valkey.url().replace("redis://", "redis://:hush-hush@")
        with closing(redis.Redis.from_url(own_valkey.url())) as client:
            client.config_set("requirepass", "another")
        found = examined(installation.operator())
        assert found.at("red") == {"broker reach"}
        assert "hush-hush" not in found.ended.out
