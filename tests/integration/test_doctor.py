"""``reroot doctor`` on a set-up that is as it should be, and on those that are not: one line that says what helps."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from pyiceberg.catalog.rest import RestCatalog

from demo.services import Valkey
from tests.support.odd_server import OddServer, Reply, error_reply, json_reply
from tests.support.operator import NOWHERE, Operator
from tests.support.rest_double import TEMPERAMENTS, Kind, RestDouble
from tests.support.tables import make_table
from worker.controlplane import inspection
from worker.controlplane.connection import ControlPlaneAwayError, connect
from worker.controlplane.election import CLASS
from worker.controlplane.migrations.steps import here
from worker.controlplane.workers import note_alive
from worker.identifiers import LEGACY_NAMESPACE, TableIdentifier
from worker.lakehouse.rest import RestCatalog as ReadingCatalog
from worker.lakehouse.rest_scratch import RestScratchCatalog
from worker.messages import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.controlplane import ControlPlaneFixture
    from tests.support.operator import Ended

WAREHOUSE = "w_1"
TOKEN = "let-me-in"
TABLE = TableIdentifier((LEGACY_NAMESPACE,), "ds_1")
USED = {"REROOT_CATALOG_AUTH": "token", "REROOT_CATALOG_TOKEN": TOKEN, "REROOT_WAREHOUSE": WAREHOUSE}


@dataclass
class Found:
    """What ``reroot doctor --json`` said."""

    ended: Ended
    checks: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.document: Any = json.loads(self.ended.out)
        self.checks = self.document["checks"]

    def at(self, level: str) -> set[str]:
        """The checks of a level."""
        return {f"{check['system'].split()[0]} {check['name']}" for check in self.checks if check["level"] == level}

    def one(self, system: str, name: str) -> dict[str, Any]:
        """One check, which is there once."""
        mine = [each for each in self.checks if system in {each["system"], each["system"].split()[0]}]
        [check] = [each for each in mine if each["name"] == name]
        return check


def examined(operator: Operator, *arguments: str) -> Found:
    return Found(operator.types("doctor", "--json", *arguments))


class Installation:
    """A control plane, a broker, a worker that was seen, and a catalog that asks who comes."""

    def __init__(self, database: str, broker: str, folder: Path, leaving: ExitStack) -> None:
        self.database = database
        self.broker = broker
        self.folder = folder
        self._leaving = leaving
        with closing(connect(database, role="test")) as connection:
            note_alive(connection, "worker-1", [Queue.MOVES], 4)
        self.double = self.catalog("correct")

    def catalog(self, temperament: str) -> RestDouble:
        """A catalog with one table in the legacy namespace."""
        double = RestDouble() if temperament == "correct" else RestDouble(TEMPERAMENTS[temperament])
        double.make_warehouse(WAREHOUSE, f"file://{self.folder}/{temperament}")
        self._leaving.enter_context(double)
        writer = RestCatalog("writer", uri=double.uri, warehouse=WAREHOUSE, auth={"type": "noop"})  # type: ignore[arg-type]
        make_table(writer, TABLE)
        writer.close()
        double.tokens = frozenset({TOKEN})
        return double

    def operator(self, **settings: str) -> Operator:
        given = {"REROOT_CATALOG_URI": self.double.uri, **USED, **settings}
        return Operator(self.database, self.broker, **{name: value for name, value in given.items() if value})


@pytest.fixture
def installation(database: str, valkey: str, tmp_path: Path) -> Iterator[Installation]:
    with ExitStack() as leaving:
        yield Installation(database, valkey, tmp_path, leaving)


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


class TestCatalog:
    def test_away(self, installation: Installation) -> None:
        found = examined(installation.operator(REROOT_CATALOG_URI="http://127.0.0.1:1"))
        assert found.ended.code == 3
        assert found.at("red") == {"warehouse alive"}

    def test_scaled_to_zero(self, installation: Installation) -> None:
        with OddServer(Reply()) as server:
            server.config = Reply(503, b"<html>no upstream</html>")
            found = examined(installation.operator(REROOT_CATALOG_URI=server.uri))
        assert found.ended.code == 3
        assert "scaled to zero" in found.one("warehouse", "alive")["says"]

    def test_it_is_served_elsewhere(self, installation: Installation) -> None:
        with OddServer(Reply()) as server:
            server.config = Reply(307, b"", {"Location": "https://carl:hush-hush@login.example:8443/x?state=hush-hush"})
            found = examined(installation.operator(REROOT_CATALOG_URI=server.uri))
        assert "it redirects to https://login.example:8443, which" in found.one("warehouse", "alive")["says"]
        assert "hush-hush" not in found.ended.out

    def test_it_asks_for_credentials_and_none_are_set(self, installation: Installation) -> None:
        found = examined(installation.operator(REROOT_CATALOG_AUTH="", REROOT_CATALOG_TOKEN=""))
        assert found.ended.code == 1
        assert found.at("red") == {"warehouse credentials"}
        assert "warehouse alive" in found.at("green")

    def test_it_refuses_the_credentials_that_are_set(self, installation: Installation) -> None:
        found = examined(installation.operator(REROOT_CATALOG_TOKEN="not-this-one"))
        assert found.ended.code == 1
        check = found.one("warehouse", "credentials")
        assert check["level"] == "red"
        assert check["says"].startswith("refused: 401")
        assert check["remedy"] == "REROOT_CATALOG_TOKEN"
        assert "not-this-one" not in found.ended.out

    def test_it_lets_anybody_in(self, installation: Installation) -> None:
        installation.double.tokens = None
        check = examined(installation.operator()).one("warehouse", "credentials")
        assert (check["level"], check["says"]) == ("yellow", "token is accepted, and so is a request without any")

    @pytest.mark.parametrize(
        ("user", "level", "says"),
        [
            ("admin", "green", "basic is accepted; without it the answer is 403"),
            ("carl", "yellow", "whether basic is accepted was not seen: 403 ForbiddenException Current user carl"),
            ("", "red", "none are set, and it wants some: 403 ForbiddenException Current user anonymous"),
        ],
    )
    def test_a_config_that_everybody_may_read_says_nothing_of_the_rest(
        self, installation: Installation, user: str, level: str, says: str
    ) -> None:
        double = installation.catalog("gravitino-1.3")
        double.users = frozenset({"admin"})
        basic = {"REROOT_CATALOG_AUTH": "basic", "REROOT_CATALOG_USER": user, "REROOT_CATALOG_PASSWORD": "hush-hush"}
        used = basic if user else {"REROOT_CATALOG_AUTH": ""}
        found = examined(installation.operator(REROOT_CATALOG_URI=double.uri, REROOT_CATALOG_TOKEN="", **used))
        check = found.one("warehouse", "credentials")
        assert (check["level"], check["says"][: len(says)]) == (level, says)
        assert "turn authentication on" not in check["remedy"]
        assert found.ended.code == (0 if user == "admin" else 1)

    def test_a_token_endpoint_that_is_away(self, installation: Installation) -> None:
        oauth2 = {
            "REROOT_CATALOG_AUTH": "oauth2",
            "REROOT_CATALOG_TOKEN": "",
            "REROOT_CATALOG_CLIENT_ID": "reroot",
            "REROOT_CATALOG_CLIENT_SECRET": "hush-hush",
            "REROOT_CATALOG_OAUTH2_TOKEN_URL": "http://127.0.0.1:1/token",
        }
        found = examined(installation.operator(**oauth2))
        assert found.ended.code == 3
        assert "token endpoint" in found.one("warehouse", "credentials")["says"]
        assert "hush-hush" not in found.ended.out

    def test_a_warehouse_of_its_own_whose_secret_is_not_mounted(
        self, installation: Installation, tmp_path: Path
    ) -> None:
        overrides = {WAREHOUSE: {"token_file": str(tmp_path / "none")}}
        found = examined(installation.operator(REROOT_CATALOG_OVERRIDES=json.dumps(overrides)))
        assert found.ended.code == 1
        assert "No such file" in found.one("warehouse", "credentials")["says"]

    def test_a_warehouse_that_it_does_not_know(self, installation: Installation) -> None:
        double = installation.catalog("lakekeeper-main")
        operator = installation.operator(REROOT_CATALOG_URI=double.uri)
        found = examined(operator, "--warehouse", "w_unknown")
        assert found.ended.code == 1
        assert "REROOT_WAREHOUSE" in found.one("warehouse", "warehouse")["remedy"]

    @pytest.mark.parametrize(
        "config",
        [[], {"overrides": [1]}, {"defaults": "none"}, {"endpoints": {"a": 1}}, {"defaults": {}, "endpoints": [1]}],
    )
    def test_it_says_of_its_use_what_is_no_catalogs_answer(self, installation: Installation, config: Any) -> None:
        with OddServer(Reply()) as server:
            server.config = json_reply(200, config)
            found = examined(installation.operator(REROOT_CATALOG_URI=server.uri))
        check = found.one("warehouse", "warehouse")
        assert (found.ended.code, check["level"]) == (1, "red")
        assert "its answer cannot be understood" in check["says"]
        assert "REROOT_CATALOG_URI" in check["remedy"]

    def test_an_error_in_a_success_is_an_error(self, installation: Installation) -> None:
        with OddServer(Reply()) as server:
            server.config = json_reply(200, {"error": {"message": "no such warehouse", "type": "X", "code": 404}})
            check = examined(installation.operator(REROOT_CATALOG_URI=server.uri)).one("warehouse", "warehouse")
        assert check["level"] == "red"
        assert "no such warehouse" in check["says"]

    def test_a_gateway_that_writes_null_for_nothing(self, installation: Installation) -> None:
        with OddServer(json_reply(200, {"namespaces": 5})) as server:
            server.config = json_reply(200, {"defaults": None, "overrides": {"uri": None}, "endpoints": None})
            found = examined(installation.operator(REROOT_CATALOG_URI=server.uri))
            assert "/v1/namespaces/datasets" in [received.target for received in server.received]
        assert found.one("warehouse", "usage")["level"] == "green"

    def test_a_clock_that_is_wrong(self, installation: Installation) -> None:
        with OddServer(error_reply(404, "NoSuchNamespaceException")) as server:
            for minutes, level in ((1, "yellow"), (20, "red")):
                date = format_datetime(datetime.now(UTC) + timedelta(minutes=minutes), usegmt=True)
                server.config = Reply(200, b"{}", {"Date": date})
                found = examined(installation.operator(REROOT_CATALOG_URI=server.uri))
                assert found.one("warehouse", "clock")["level"] == level
                assert "ahead of this machine's" in found.one("warehouse", "clock")["says"]

    @pytest.mark.parametrize(
        ("lacking", "level"),
        [(("rename",), "yellow"), (("register",), "green"), (("register", "rename"), "red"), (("DELETE",), "red")],
    )
    def test_what_it_does_not_offer(self, installation: Installation, lacking: tuple[str, ...], level: str) -> None:
        kept = installation.double.endpoints or ()
        installation.double.endpoints = tuple(each for each in kept if not any(word in each for word in lacking))
        assert examined(installation.operator()).one("warehouse", "offers")["level"] == level

    @pytest.mark.parametrize(
        ("page", "says"),
        [
            ({"namespaces": [["a"]], "next-page-token": "1"}, "listings in pages, 100 a page"),
            ({"namespaces": [["a"], ["b"]]}, "listings whole, whatever the page's size, 100 a page"),
        ],
    )
    def test_whether_listings_come_in_pages(self, installation: Installation, page: Any, says: str) -> None:
        with OddServer(json_reply(200, page)) as server:
            server.config = json_reply(200, {"defaults": {"prefix": "w/1", "rest-page-size": "100"}})
            found = examined(installation.operator(REROOT_CATALOG_URI=server.uri))
            assert "/v1/w/1/namespaces?pageToken=&pageSize=1" in [received.target for received in server.received]
        assert found.one("warehouse", "usage")["says"].startswith(says)

    def test_no_credential_goes_where_the_settings_do_not_lead(self, installation: Installation) -> None:
        with OddServer(Reply()) as server, OddServer(Reply()) as elsewhere:
            server.config = json_reply(200, {"overrides": {"uri": elsewhere.uri}})
            examined(installation.operator(REROOT_CATALOG_URI=server.uri))
            listings = [each.target for each in server.received if each.target.startswith("/v1/namespaces?")]
            assert listings
            asked = [each for each in elsewhere.received if each.target.startswith("/v1/namespaces?")]
        assert not asked

    def test_a_probe_clears_up_where_nothing_can_be_renamed(self, installation: Installation) -> None:
        kept = installation.double.endpoints or ()
        installation.double.endpoints = tuple(each for each in kept if "rename" not in each)
        found = examined(installation.operator(), "--probe")
        assert found.one("warehouse", "rename")["level"] == "yellow"
        assert found.one("warehouse", "two names")["level"] == "green"
        assert found.one("warehouse", "clearing")["level"] == "green"
        assert {path.name for path in (installation.folder / "correct").iterdir()} == {LEGACY_NAMESPACE}

    def test_what_it_says_of_itself(self, installation: Installation) -> None:
        told = json_reply(200, {"version": "0.13.3"})
        with OddServer(told) as server:
            server.config = json_reply(
                200, {"overrides": {"idempotency-key-lifetime": "PT30M", "namespace-separator": "%2E"}}
            )
            found = examined(installation.operator(REROOT_CATALOG_URI=server.uri))
        assert found.one("warehouse", "version")["says"] == "Lakekeeper 0.13.3"
        says = "paging not seen: there is too little to list, levels parted by %2E, idempotency keys for PT30M"
        assert found.one("warehouse", "usage")["says"] == says
        assert found.one("warehouse", "offers")["level"] == "yellow"


class TestStorage:
    def test_a_table_that_cannot_be_read(self, installation: Installation) -> None:
        for path in installation.folder.rglob("*.parquet"):
            path.unlink()
        found = examined(installation.operator(), "--probe")
        assert found.ended.code == 1
        reading = [check for check in found.checks if check["name"] == "reading"]
        assert [check["level"] for check in reading] == ["red", "green"]
        assert "REROOT_CATALOG_PROPERTIES" in reading[0]["remedy"]

    def test_a_place_that_cannot_be_written(self, installation: Installation, tmp_path: Path) -> None:
        # The catalog writes its metadata; where the data would go stands a file.
        def between(kind: Kind) -> None:
            if kind is Kind.CREATE:
                for table in (tmp_path / "correct").rglob("scratch"):
                    (table / "data").write_bytes(b"")

        installation.double.between = between
        original = installation.double.files.write

        def write(location: str, content: bytes) -> None:
            original(location, content)
            between(Kind.CREATE)

        installation.double.files.write = write  # type: ignore[method-assign]
        check = examined(installation.operator(), "--probe").one("warehouse", "writing")
        assert check["level"] == "yellow"


class TestTemperaments:
    """What a probe finds out of each real server's nature."""

    @pytest.mark.parametrize(
        ("temperament", "name", "level", "says"),
        [
            ("lakekeeper-0.13.3", "two names", "green", "may not hold one table"),
            ("lakekeeper-main", "two names", "green", "may not hold one table"),
            ("lakekeeper-main", "rename", "green", "works across namespaces"),
            ("gravitino-1.3", "two names", "green", "may hold one table"),
            ("polaris", "two names", "yellow", "403"),
            ("polaris", "rename", "green", "works across namespaces"),
        ],
    )
    def test_names(self, installation: Installation, temperament: str, name: str, level: str, says: str) -> None:
        double = installation.catalog(temperament)
        settings = {"REROOT_CATALOG_URI": double.uri}
        if temperament.startswith("gravitino"):
            settings |= {"REROOT_CATALOG_AUTH": "", "REROOT_CATALOG_TOKEN": ""}
        found = examined(installation.operator(**settings), "--probe")
        check = found.one("warehouse", name)
        assert check["level"] == level, found.ended.out
        assert says in check["says"]
        assert found.one("warehouse", "clearing")["level"] == "green", found.one("warehouse", "clearing")
        assert found.ended.code == 0
        assert not double.failures

    def test_a_soft_deletion_keeps_nothing_of_the_probe(self, installation: Installation) -> None:
        double = installation.catalog("lakekeeper-main")
        warehouse = double.warehouse(WAREHOUSE)
        warehouse.soft_delete = True
        before = warehouse.below(())
        found = examined(installation.operator(REROOT_CATALOG_URI=double.uri), "--probe")
        assert found.one("warehouse", "clearing")["level"] == "green", found.one("warehouse", "clearing")
        assert (warehouse.below(()), warehouse.deleted) == (before, [])

    def test_what_a_soft_deletion_does_keep_is_named(
        self, installation: Installation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(RestScratchCatalog, "drop", ReadingCatalog.drop)  # as where force is not known
        double = installation.catalog("lakekeeper-main")
        warehouse = double.warehouse(WAREHOUSE)
        warehouse.soft_delete = True
        before = set(warehouse.below(()))
        check = examined(installation.operator(REROOT_CATALOG_URI=double.uri), "--probe").one("warehouse", "clearing")
        kept = [".".join(levels) for levels in warehouse.below(()) if levels not in before]
        [row] = warehouse.deleted
        assert check["level"] == "yellow"
        assert all(what in check["says"] for what in [*kept, row.metadata_location])
        assert "drop them once it has expired" in check["remedy"]

    def test_a_server_that_does_and_answers_500(self, installation: Installation) -> None:
        double = installation.catalog("gravitino-1.2-authorization")
        settings = {"REROOT_CATALOG_URI": double.uri, "REROOT_CATALOG_AUTH": "", "REROOT_CATALOG_TOKEN": ""}
        found = examined(installation.operator(**settings), "--probe")
        check = found.one("warehouse", "two names")
        assert check["level"] == "yellow"
        assert check["says"].startswith("may hold one table, although registering answers an error")
        assert found.one("warehouse", "clearing")["level"] == "green"
