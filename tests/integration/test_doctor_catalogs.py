"""``reroot doctor`` on catalogs and storage, sound ones and others: one line that says what helps."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.doctor import WAREHOUSE, Installation, examined
from tests.support.odd_server import OddServer, Reply, error_reply, json_reply
from tests.support.rest_double import Kind
from worker.identifiers import LEGACY_NAMESPACE
from worker.lakehouse.rest import RestCatalog as ReadingCatalog
from worker.lakehouse.rest_scratch import RestScratchCatalog

if TYPE_CHECKING:
    from pathlib import Path


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
            ("", "red", "none are set, and the catalog asks for some: 403 ForbiddenException Current user anonymous"),
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
