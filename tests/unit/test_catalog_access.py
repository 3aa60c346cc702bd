"""A secret that an operator replaces is used by the next job, and what cannot be read is said where it matters."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from tests.support.odd_server import OddServer, json_reply
from worker.catalog_access import CatalogAccess
from worker.lakehouse.lakehouse import OpenLakehouse, open_lakehouse
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind
from worker.settings import load_settings
from worker.telemetry import configure, log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FREE = json_reply(200, {"namespace": ["datasets"], "properties": {}})


class Installation:
    """A catalog, and settings for it whose secrets lie in files."""

    def __init__(self, folder: Path) -> None:
        self.server = OddServer(FREE)
        self.token = folder / "token"
        self.overrides = folder / "overrides.json"
        self.environ = {
            "REROOT_CATALOG_URI": self.server.uri,
            "REROOT_CATALOG_AUTH": "token",
            "REROOT_CATALOG_TOKEN_FILE": str(self.token),
            "REROOT_CATALOG_OVERRIDES_FILE": str(self.overrides),
            "REROOT_WAREHOUSE_TEMPLATE": "w_{workspace_hex}",
        }

    def write(self, token: str, **overrides: Any) -> None:
        """Replace both files, each at one instant."""
        for file, content in ((self.token, token), (self.overrides, json.dumps(overrides))):
            new = file.with_suffix(".new")
            new.write_text(content)
            new.replace(file)

    def open(self) -> OpenLakehouse:
        access = CatalogAccess(load_settings(self.environ), lambda: load_settings(self.environ))
        return open_lakehouse(access.connection)

    def shown(self, lakehouse: OpenLakehouse, warehouse: str) -> str:
        """Who a job in this warehouse says it is."""
        lakehouse.catalog(warehouse).namespace_exists(("datasets",))
        return self.server.received[-1].headers["Authorization"]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(tmp_path)
    made.write("t1")
    with made.server:
        yield made


def test_each_warehouse_is_asked_with_its_own_credentials(installation: Installation) -> None:
    installation.write("t1", w_b={"token": "tb"}, w_c={"auth": "basic", "user": "carl", "password": "p:w"})
    lakehouse = installation.open()
    assert installation.shown(lakehouse, "w_a") == "Bearer t1"
    assert installation.shown(lakehouse, "w_b") == "Bearer tb"
    assert installation.shown(lakehouse, "w_c") == "Basic Y2FybDpwOnc="
    assert installation.shown(lakehouse, "w_a") == "Bearer t1"
    lakehouse.close()


def test_a_replaced_file_is_used_by_the_next_job(installation: Installation) -> None:
    lakehouse = installation.open()
    assert installation.shown(lakehouse, "w_a") == "Bearer t1"
    kept = lakehouse.catalog("w_a")
    assert lakehouse.catalog("w_a") is kept
    installation.write("t2", w_b={"token": "tb"})
    assert installation.shown(lakehouse, "w_a") == "Bearer t2"
    assert installation.shown(lakehouse, "w_b") == "Bearer tb"
    lakehouse.close()


def test_a_warehouses_own_file_is_read_for_each_job(installation: Installation, tmp_path: Path) -> None:
    own = tmp_path / "own"
    installation.write("t1", w_b={"token_file": str(own)})
    lakehouse = installation.open()
    own.write_text("tb1")
    assert installation.shown(lakehouse, "w_b") == "Bearer tb1"
    own.write_text("tb2")
    assert installation.shown(lakehouse, "w_b") == "Bearer tb2"
    lakehouse.close()


def test_a_warehouse_whose_file_is_away_waits_and_says_so_and_the_others_go_on(
    installation: Installation, tmp_path: Path
) -> None:
    installation.write("t1", w_b={"token_file": str(tmp_path / "none")})
    lakehouse = installation.open()
    with pytest.raises(CatalogError, match=r"warehouse w_b: cannot read .*none: No such file") as caught:
        lakehouse.catalog("w_b").namespace_exists(("datasets",))
    assert (caught.value.code, caught.value.kind) == (ErrorCode.UNAUTHORIZED, ErrorKind.TRANSIENT)
    assert installation.server.received == []
    assert installation.shown(lakehouse, "w_a") == "Bearer t1"
    lakehouse.close()


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What this process logs, with logging as it was before restored afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    written = io.StringIO()
    yield written
    root.handlers[:], _ = before
    root.setLevel(before[1])
    structlog.reset_defaults()


def test_a_file_that_is_half_written_leaves_what_was_read_before(
    installation: Installation, lines: io.StringIO
) -> None:
    configure(load_settings(installation.environ), lines)
    lakehouse = installation.open()
    installation.overrides.write_text('{"w_b": {"tok')
    assert installation.shown(lakehouse, "w_a") == "Bearer t1"
    assert installation.shown(lakehouse, "w_a") == "Bearer t1"
    assert lines.getvalue().count("what was read before stays") == 1
    installation.write("t2")
    assert installation.shown(lakehouse, "w_a") == "Bearer t2"
    lakehouse.close()


def test_secrets_that_were_read_later_stand_in_no_line(installation: Installation, lines: io.StringIO) -> None:
    configure(load_settings(installation.environ), lines)
    lakehouse = installation.open()
    installation.write("later-one", w_b={"token": "later-two"})
    installation.shown(lakehouse, "w_a")
    installation.shown(lakehouse, "w_b")
    log.info("spoke later-one and later-two and never-a-secret")
    assert "later" not in lines.getvalue().replace("read_later", "")
    assert "never-a-secret" in lines.getvalue()
    lakehouse.close()
