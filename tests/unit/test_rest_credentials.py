"""Who the REST client says it is, and which credentials for tables' files it asks for."""

from __future__ import annotations

import gc
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from tests.support.clocks import a_clock_of_its_own
from tests.support.odd_server import OddServer, Reply, error_reply, json_reply
from tests.unit.test_rest_client import FREE, MISSING, NEW, OLD, catalog, loaded, refused
from worker.lakehouse.connection import CatalogAuth
from worker.lakehouse.port import Catalog, ErrorCode, ErrorKind
from worker.lakehouse.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator


def used(server: OddServer) -> list[str | None]:
    """How each request said who it came from."""
    return [received.headers.get("Authorization") for received in server.received]


class TestWhoWeAre:
    def test_no_header_where_there_is_nothing_to_say(self) -> None:
        with OddServer(FREE) as server, catalog(server) as opened:
            opened.namespace_exists(("main",))
        assert used(server) == [None]

    def test_basic(self) -> None:
        with (
            OddServer(FREE) as server,
            catalog(server, auth=CatalogAuth.BASIC, user="carl", password=SecretStr("p:w")) as opened,
        ):
            opened.namespace_exists(("main",))
        assert used(server) == ["Basic Y2FybDpwOnc="]

    def test_token(self) -> None:
        with OddServer(FREE) as server, catalog(server, auth=CatalogAuth.TOKEN, token=SecretStr("t0")) as opened:
            opened.namespace_exists(("main",))
            assert server.config_received[0].headers["Authorization"] == "Bearer t0"
        assert used(server) == ["Bearer t0"]

    def test_further_headers_come_from_the_properties(self) -> None:
        properties = {"header.X-Iceberg-Access-Delegation": SecretStr("client-managed")}
        with OddServer(FREE) as server, catalog(server, properties=properties) as opened:
            opened.namespace_exists(("main",))
        assert server.received[0].headers["X-Iceberg-Access-Delegation"] == "client-managed"


def told(error: BaseException) -> str:
    """Everything that a log or an event of Celery's shows of an error."""
    return repr(error) + "".join(traceback.format_exception(error))


@pytest.mark.parametrize("held", ["hush\nhush", "hush-hush\r", "hush-hush—", "hush\x00hush"])
class TestWhatNoHeaderCanCarry:
    """http.client refuses it with an exception that quotes it whole."""

    def test_a_token(self, held: str) -> None:
        with OddServer(FREE) as server, catalog(server, auth=CatalogAuth.TOKEN, token=SecretStr(held)) as opened:
            error = refused(lambda: opened.load(OLD))
            assert server.config_received == []
        assert (error.code, error.kind) == (ErrorCode.UNAUTHORIZED, ErrorKind.TRANSIENT)
        assert "set it anew" in str(error)
        assert "hush" not in told(error)

    def test_a_token_that_was_handed_out(self, held: str) -> None:
        with oauth([token(held)], FREE) as (opened, server, _):
            error = refused(lambda: opened.load(OLD))
            assert server.config_received == []
        assert (error.code, error.kind) == (ErrorCode.UNAUTHORIZED, ErrorKind.TRANSIENT)
        assert "hush" not in told(error)


@pytest.mark.parametrize("held", ["hush\nhush", "hush-hush—"])
def test_a_property_that_no_header_can_carry(held: str) -> None:
    with OddServer(FREE) as server, catalog(server, properties={"header.X-Key": SecretStr(held)}) as opened:
        error = refused(lambda: opened.load(OLD))
        assert server.config_received == []
    assert (error.code, error.kind) == (ErrorCode.INVALID, ErrorKind.PERMANENT)
    assert "hush" not in told(error)


@contextmanager
def oauth(tokens: list[Reply], *replies: Reply) -> Iterator[tuple[Catalog, OddServer, OddServer]]:
    """A catalog that wants a token, what answers for it, and what hands out tokens."""
    with OddServer(*tokens) as endpoint, OddServer(*replies) as server:
        settings: dict[str, Any] = {
            "auth": CatalogAuth.OAUTH2,
            "client_id": "reroot",
            "client_secret": SecretStr("s&cret"),
            "oauth2_token_url": endpoint.uri + "/token",
            "oauth2_scope": "catalog",
        }
        with catalog(server, **settings) as opened:
            yield opened, server, endpoint


def token(name: str, **rest: Any) -> Reply:
    return json_reply(200, {"access_token": name, "token_type": "bearer", **rest})


class TestOAuth2:
    def test_one_token_serves_until_it_ends(self) -> None:
        with oauth([token("t1", expires_in=3600)], FREE) as (opened, server, endpoint):
            opened.namespace_exists(("main",))
            opened.namespace_exists(("main",))
            assert used(server) == ["Bearer t1", "Bearer t1"]
            assert len(endpoint.received) == 1
            assert endpoint.received[0].body == (
                b"grant_type=client_credentials&client_id=reroot&client_secret=s%26cret&scope=catalog"
            )

    def test_an_ended_token_is_replaced_before_it_is_refused(self) -> None:
        with oauth([token("t1", expires_in=0), token("t2")], FREE) as (opened, server, _):
            opened.namespace_exists(("main",))
            assert server.config_received[0].headers["Authorization"] == "Bearer t1"
            assert used(server) == ["Bearer t2"]

    @pytest.mark.parametrize(("said", "seconds"), [("3599", 3599), ("120.5", 120), ("soon", 3600), ("nan", 3600)])
    def test_a_quoted_lifetime_counts_and_one_that_is_no_number_does_not(self, said: str, seconds: float) -> None:
        tokens = [token("t1", expires_in=said), token("t2")]
        with a_clock_of_its_own("worker.lakehouse.auth") as pass_time, oauth(tokens, FREE) as (opened, server, _):
            opened.namespace_exists(("main",))
            pass_time(seconds - 61)
            opened.namespace_exists(("main",))
            pass_time(2)
            opened.namespace_exists(("main",))
            assert used(server) == ["Bearer t1", "Bearer t1", "Bearer t2"]

    def test_a_revoked_token_is_replaced_once_and_the_read_sent_again(self) -> None:
        with oauth([token("t1"), token("t2")], error_reply(401, "NotAuthorized"), FREE) as (opened, server, _):
            assert opened.namespace_exists(("main",))
            assert used(server) == ["Bearer t1", "Bearer t2"]

    def test_a_token_that_is_refused_every_time_is_not_tried_for_ever(self) -> None:
        with oauth([token("t")], error_reply(419, "Expired")) as (opened, server, _):
            assert refused(lambda: opened.load(OLD)).code is ErrorCode.UNAUTHORIZED
            assert len(server.received) == 2

    def test_a_refused_change_is_not_sent_again_but_the_next_one_has_a_new_token(self) -> None:
        replies = error_reply(401, "NotAuthorized"), Reply(204, b"")
        with oauth([token("t1"), token("t2")], *replies) as (opened, server, _):
            error = refused(lambda: opened.drop(OLD))
            assert (error.code, error.kind) == (ErrorCode.UNAUTHORIZED, ErrorKind.TRANSIENT)
            assert len(server.received) == 1
            opened.drop(OLD)
            assert used(server) == ["Bearer t1", "Bearer t2"]

    def test_a_token_that_is_still_good_serves_while_the_endpoint_is_away(self) -> None:
        tokens = [token("t1", expires_in=40), Reply(503, b"")]
        with (
            a_clock_of_its_own("worker.lakehouse.auth") as pass_time,
            oauth(tokens, FREE) as (opened, server, endpoint),
        ):
            opened.namespace_exists(("main",))
            pass_time(30)
            opened.namespace_exists(("main",))
            assert used(server) == ["Bearer t1", "Bearer t1"]
            assert len(endpoint.received) == 2
            pass_time(30)
            assert refused(lambda: opened.drop(OLD)).code is ErrorCode.UNAVAILABLE

    @pytest.mark.parametrize(
        ("reply", "code", "kind"),
        [
            (json_reply(401, {"error": "invalid_client"}), ErrorCode.UNAUTHORIZED, ErrorKind.TRANSIENT),
            (json_reply(400, {"error": "invalid_scope"}), ErrorCode.UNAUTHORIZED, ErrorKind.TRANSIENT),
            (Reply(503, b"<html>"), ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT),
            (json_reply(200, {"hello": 1}), ErrorCode.UNREADABLE, ErrorKind.TRANSIENT),
            (Reply(fault="reset"), ErrorCode.UNCLEAR, ErrorKind.TRANSIENT),
        ],
    )
    def test_no_token_no_request(self, reply: Reply, code: ErrorCode, kind: ErrorKind) -> None:
        with oauth([reply], FREE) as (opened, server, _):
            error = refused(lambda: opened.drop(OLD))
            assert (error.code, error.kind) == (code, kind)
            assert "s&cret" not in str(error)
            assert server.received == []
            assert server.config_received == []


VENDING = "X-Iceberg-Access-Delegation"


class TestVending:
    """A credential for a table's files is asked for where its load can bring one, and nowhere else."""

    def test_only_a_load_asks_for_it(self) -> None:
        with OddServer(loaded(), json_reply(200, {})) as server, catalog(server) as opened:
            opened.load(OLD)
            opened.register(NEW, "s3://lake/a.metadata.json")
            opened.rename(OLD, NEW)
            opened.drop(OLD)
            asked = [received.headers.get(VENDING) for received in (*server.received, *server.config_received)]
        assert asked == ["vended-credentials", None, None, None, None]

    @pytest.mark.parametrize(
        "refusal",
        [
            error_reply(400, "IllegalArgumentException", "No credential provider is set"),
            error_reply(406, "UnsupportedOperationException", "There are several credential providers"),
        ],
    )
    def test_a_catalog_that_hands_out_none_is_asked_once(self, refusal: Reply) -> None:
        with OddServer(refusal, loaded()) as server, catalog(server) as opened:
            opened.load(OLD)
            opened.load(OLD)
            asked = [received.headers.get(VENDING) for received in server.received]
        assert asked == ["vended-credentials", None, None]

    def test_it_is_asked_again_after_ten_minutes(self) -> None:
        refusal = error_reply(400, "BadRequestException")
        clock = a_clock_of_its_own("worker.lakehouse.rest")
        with clock as pass_time, OddServer(refusal, loaded()) as server, catalog(server) as opened:
            for seconds in (0, 599, 2, 0):
                pass_time(seconds)
                opened.load(OLD)
            asked = [received.headers.get(VENDING) for received in server.received]
        assert asked == ["vended-credentials", None, None, "vended-credentials", "vended-credentials"]

    def test_another_refusal_turns_nothing_off(self) -> None:
        refusal = error_reply(400, "BadRequestException")
        with OddServer(refusal, refusal, MISSING, loaded()) as server, catalog(server) as opened:
            assert refused(lambda: opened.load(OLD)).code is ErrorCode.INVALID
            assert refused(lambda: opened.load(OLD)).code is ErrorCode.TABLE_MISSING
            opened.load(OLD)
            asked = [received.headers.get(VENDING) for received in server.received]
        assert asked == ["vended-credentials", None, "vended-credentials", "vended-credentials"]

    @pytest.mark.parametrize(("said", "sent"), [("client-managed", "client-managed"), ("", None)])
    def test_an_operator_may_say_otherwise(self, said: str, sent: str | None) -> None:
        properties = {f"header.{VENDING}": SecretStr(said)}
        with OddServer(loaded()) as server, catalog(server, properties=properties) as opened:
            opened.load(OLD)
            assert server.received[0].headers.get(VENDING) == sent

    def test_what_was_handed_out_is_kept_nowhere(self) -> None:
        reply = loaded(config={"s3.secret-access-key": "handed-out"})
        with OddServer(reply) as server, catalog(server) as opened:
            table = opened.load(OLD)
            opened.file_missing("file:/lake/t/x", table)
            del table
            gc.collect()
            # Its type itself: asking other libraries' lazy objects for their class would load them.
            storages = [each for each in gc.get_objects() if type(each) is Storage]
            assert [each for each in storages if "handed-out" in each._options.values()] == []
