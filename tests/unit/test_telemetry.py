"""Logs: every line says what it is about, and no line holds a secret, whoever wrote it."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from worker.settings import Settings, load_settings
from worker.telemetry import bind, configure, log, scrubber, sensitive, unbind_all

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORDS = {
    "REROOT_DATABASE_URL": "postgresql://app:d%40tabase-pw@pg/control",
    "REROOT_BROKER_URL": "redis://:broker-pw@redis/0",
    "REROOT_CATALOG_URI": "http://user:uri-pw@catalog",
    "REROOT_CATALOG_AUTH": "basic",
    "REROOT_CATALOG_USER": "reroot",
    "REROOT_CATALOG_PASSWORD": 'quo"ted\\pässword',
    "REROOT_CATALOG_PROPERTIES": '{"s3.secret-access-key": "prop-pw", "s3.region": "eu-west-1"}',
}
SECRETS = ("d%40tabase-pw", "d@tabase-pw", "broker-pw", "uri-pw", 'quo"ted\\pässword', "prop-pw")


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> Settings:
    return load_settings(PASSWORDS | {"REROOT_LOG_FORMAT": getattr(request, "param", "json")})


@pytest.fixture
def stream(settings: Settings) -> Iterator[io.StringIO]:
    """What the process writes, with logging as it was before restored afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    written = io.StringIO()
    configure(settings, written)
    yield written
    root.handlers[:], _ = before
    root.setLevel(before[1])
    unbind_all()
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_names_stand_on_every_line_of_a_job_ours_and_foreign_and_on_none_after_it(stream: io.StringIO) -> None:
    bind(dataset_id="d1")
    bind(warehouse="w", attempt=2)
    log.info("looked", name="new")
    logging.getLogger("celery.worker").info("foreign %s", "line")
    unbind_all()
    log.info("after")
    ours, foreign, after = lines(stream)
    for line in (ours, foreign):
        assert (line["dataset_id"], line["warehouse"], line["attempt"], line["level"]) == ("d1", "w", 2, "info")
        assert line["timestamp"].endswith("Z")
    assert (ours["event"], ours["name"], foreign["event"], foreign["logger"]) == (
        "looked",
        "new",
        "foreign line",
        "celery.worker",
    )
    assert "dataset_id" not in after
    assert "warehouse" not in after


def test_one_line_holds_a_whole_exception(stream: io.StringIO) -> None:
    try:
        int("two\nlines")
    except ValueError:
        log.exception("failed")
    (line,) = lines(stream)
    assert "Traceback" in line["exception"]
    assert line["level"] == "error"


@pytest.mark.parametrize("settings", ["json", "console"], indirect=True)
@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_is_in_any_line(stream: io.StringIO, settings: Settings, secret: str) -> None:
    log.info(f"event {secret}", value=secret, deep={"list": [secret]}, settings=settings)
    bind(name=secret)
    logging.getLogger("urllib3").error("cannot reach %s", f"http://u:{secret}@host")
    try:
        Path(secret).read_text()
    except OSError:
        log.exception("failed")
        logging.getLogger("celery").exception("failed")
    text = stream.getvalue()
    assert text.count("********") >= 7
    for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]):
        assert form not in text


def test_passwords_of_urls_that_no_setting_knows_are_hidden_too() -> None:
    hide = scrubber(())
    assert hide("to postgresql://a:b@c/d and redis://:x@y") == "to postgresql://a:********@c/d and redis://:********@y"
    assert hide("postgresql://c/d?user=a&password=b&x=1") == "postgresql://c/d?user=a&password=********&x=1"
    assert hide("at 12:30 http://host:8080/a@b") == "at 12:30 http://host:8080/a@b"


def test_what_is_no_secret_stays_readable(settings: Settings) -> None:
    assert "eu-west-1" not in sensitive(settings)
    assert sensitive(load_settings({})) == frozenset()


def test_chatty_libraries_are_silent_unless_something_is_wrong(stream: io.StringIO) -> None:
    logging.getLogger("celery.worker.strategy").info("Task received")
    logging.getLogger("celery.app.trace").info("Task succeeded")
    logging.getLogger("celery.app.trace").warning("odd")
    assert [line["event"] for line in lines(stream)] == ["odd"]
