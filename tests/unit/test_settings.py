"""Settings: what is read, what is refused, and that no secret is shown."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr, ValidationError

from worker.settings import SECRETS, Settings, SettingsError, describe, load_settings, variable

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = {
    "REROOT_DATABASE_URL": "postgresql://app:db-s3cret@pg/control",
    "REROOT_MIGRATION_URL": "postgresql://app:mig-s3cret@direct/control",
    "REROOT_BROKER_URL": "rediss://:broker-s3cret@redis:6379/0",
    "REROOT_CATALOG_URI": "https://catalog.example/iceberg",
    "REROOT_CATALOG_AUTH": "oauth2",
    "REROOT_CATALOG_CLIENT_ID": "reroot",
    "REROOT_CATALOG_CLIENT_SECRET": "client-s3cret",
    "REROOT_CATALOG_OAUTH2_TOKEN_URL": "https://login.example/token",
    "REROOT_CATALOG_OAUTH2_SCOPE": "catalog",
    "REROOT_CATALOG_PROPERTIES": '{"s3.access-key-id": "key-s3cret", "s3.region": "eu-s3cret"}',
    "REROOT_WAREHOUSE_TEMPLATE": "w_{workspace_hex}",
    "REROOT_LOG_LEVEL": "DEBUG",
}


def complaints(**changes: str) -> tuple[str, ...]:
    """What is said about the whole environment with these changes; an empty value takes a variable away."""
    with pytest.raises(SettingsError) as caught:
        load_settings({**WHOLE, **changes})
    return caught.value.complaints


def test_a_whole_environment_is_read_as_typed_values() -> None:
    settings = load_settings(WHOLE)
    assert settings.database() == WHOLE["REROOT_DATABASE_URL"]
    assert settings.direct_database() == WHOLE["REROOT_MIGRATION_URL"]
    assert settings.broker() == WHOLE["REROOT_BROKER_URL"]
    assert settings.catalog() == WHOLE["REROOT_CATALOG_URI"]
    assert settings.catalog_properties["s3.access-key-id"].get_secret_value() == "key-s3cret"
    assert settings.log_level == "debug"
    assert settings.grace_seconds == 900


def test_nothing_is_needed_until_it_is_asked_for() -> None:
    settings = load_settings({})
    for ask, names in (
        (settings.database, ["REROOT_DATABASE_URL"]),
        (settings.direct_database, ["REROOT_DATABASE_URL"]),
        (settings.broker, ["REROOT_BROKER_URL"]),
        (settings.catalog, ["REROOT_CATALOG_URI", "REROOT_WAREHOUSE"]),
    ):
        with pytest.raises(SettingsError) as caught:
            ask()
        assert [line.split()[0] for line in caught.value.complaints] == names


def test_without_a_direct_address_the_database_is_taken_as_direct() -> None:
    assert load_settings({"REROOT_DATABASE_URL": "postgresql://pg/x"}).direct_database() == "postgresql://pg/x"


def test_an_empty_variable_is_an_unset_one() -> None:
    settings = load_settings({"REROOT_GRACE_SECONDS": "", "REROOT_MIGRATION_URL": "", "REROOT_DATABASE_URL_FILE": ""})
    assert settings == Settings()


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        load_settings({}).grace_seconds = 1  # type: ignore[misc]


# --- warehouses


def test_the_template_takes_the_hex_digits_of_the_workspace() -> None:
    settings = load_settings(WHOLE)
    assert settings.warehouse_for("0DA3F1C2-0000-4000-8000-00000000000A") == "w_0da3f1c2000040008000" + "0" * 11 + "a"


def test_one_fixed_warehouse_serves_every_workspace() -> None:
    assert load_settings({"REROOT_WAREHOUSE": "lake"}).warehouse_for("anything") == "lake"


def test_neither_warehouse_nor_template_is_said_when_it_matters() -> None:
    with pytest.raises(SettingsError, match="REROOT_WAREHOUSE_TEMPLATE"):
        load_settings({}).warehouse_for("w")


@pytest.mark.parametrize("template", ["w_{workspace}", "w", "{workspace_hex}_{x}", "{workspace_hex}}"])
def test_a_template_that_would_send_all_to_one_place_is_refused(template: str) -> None:
    (line,) = complaints(REROOT_WAREHOUSE_TEMPLATE=template)
    assert "{workspace_hex}" in line


# --- cross-checks


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"REROOT_CATALOG_TIMEOUT_SECONDS": "60"}, "REROOT_CATALOG_TIMEOUT_SECONDS (60 s) must be less than"),
        ({"REROOT_MOVE_DEADLINE_SECONDS": "91"}, "REROOT_MOVE_DEADLINE_SECONDS (91 s) must be at most"),
        ({"REROOT_SOFT_TIME_LIMIT_SECONDS": "120"}, "REROOT_SOFT_TIME_LIMIT_SECONDS (120 s) must be less than"),
        ({"REROOT_VISIBILITY_TIMEOUT_SECONDS": "120"}, "REROOT_TIME_LIMIT_SECONDS (120 s) must be less than"),
        ({"REROOT_GRACE_SECONDS": "0"}, "REROOT_GRACE_SECONDS=0: should be greater than 0"),
        ({"REROOT_GRACE_SECONDS": "86401"}, "REROOT_GRACE_SECONDS=86401: should be less than or equal to 86400"),
        ({"REROOT_GRACE_SECONDS": "nan"}, "REROOT_GRACE_SECONDS=nan: should be a finite number"),
        ({"REROOT_QUEUE_WINDOW": "0"}, "REROOT_QUEUE_WINDOW=0: should be greater than or equal to 1"),
        ({"REROOT_WAREHOUSE": "x"}, "REROOT_WAREHOUSE and REROOT_WAREHOUSE_TEMPLATE are both set"),
        ({"REROOT_CATALOG_TYPE": "glue"}, "REROOT_CATALOG_TYPE=glue: should be 'rest' or 'sql'"),
        ({"REROOT_CATALOG_TOKEN": "x"}, "REROOT_CATALOG_TOKEN is set, but REROOT_CATALOG_AUTH=oauth2 does not use it"),
        ({"REROOT_STRATEGY": "copy"}, "REROOT_STRATEGY=copy: should be 'auto', 'register' or 'rename'"),
        ({"REROOT_DATABASE_URL": "mysql://x"}, "REROOT_DATABASE_URL: should begin with postgresql:// or postgres://"),
        ({"REROOT_BROKER_URL": "amqp://x"}, "REROOT_BROKER_URL: should begin with redis:// or rediss://"),
        ({"REROOT_CATALOG_URI": "catalog"}, "REROOT_CATALOG_URI: should begin with http:// or https://"),
        ({"REROOT_CATALOG_PROPERTIES": "[1]"}, "REROOT_CATALOG_PROPERTIES: should be a JSON object"),
        ({"REROOT_CATALOG_PROPERTIES": "{"}, "REROOT_CATALOG_PROPERTIES: should be a JSON object"),
    ],
)
def test_a_contradiction_is_one_line_that_names_the_variable(changes: dict[str, str], said: str) -> None:
    (line,) = complaints(**changes)
    assert line.startswith(said)
    assert "\n" not in line


def test_a_sql_catalog_needs_a_root_and_brings_its_own_credentials() -> None:
    sql = {"REROOT_CATALOG_TYPE": "sql", "REROOT_CATALOG_URI": "postgresql+psycopg://a:b@c/d", "REROOT_WAREHOUSE": "w"}
    with pytest.raises(SettingsError, match="REROOT_WAREHOUSE_LOCATION is not set"):
        load_settings(sql).catalog()
    with pytest.raises(SettingsError, match="REROOT_CATALOG_AUTH=token: a sql catalog"):
        load_settings({**sql, "REROOT_CATALOG_AUTH": "token"})
    assert load_settings({**sql, "REROOT_WAREHOUSE_LOCATION": "file:///w"}).catalog() == sql["REROOT_CATALOG_URI"]


@pytest.mark.parametrize(
    ("auth", "missing"),
    [
        ("basic", ["REROOT_CATALOG_USER", "REROOT_CATALOG_PASSWORD"]),
        ("token", ["REROOT_CATALOG_TOKEN"]),
        (
            "oauth2",
            ["REROOT_CATALOG_CLIENT_ID", "REROOT_CATALOG_CLIENT_SECRET", "REROOT_CATALOG_OAUTH2_TOKEN_URL"],
        ),
    ],
)
def test_a_way_to_authenticate_says_what_it_lacks(auth: str, missing: list[str]) -> None:
    settings = load_settings({
        "REROOT_CATALOG_AUTH": auth, "REROOT_CATALOG_URI": "http://c", "REROOT_WAREHOUSE": "w",
    })  # fmt: skip
    with pytest.raises(SettingsError) as caught:
        settings.catalog()
    assert [line.split()[0] for line in caught.value.complaints] == missing


def test_everything_that_is_wrong_is_said_at_once() -> None:
    lines = complaints(REROOT_GRACE_SECONDS="x", REROOT_CATALOG_TYPE="y", REROOT_QUEUE_WINDOWS="5")
    assert [line.split("=")[0].split()[0] for line in lines] == [
        "REROOT_QUEUE_WINDOWS",
        "REROOT_CATALOG_TYPE",
        "REROOT_GRACE_SECONDS",
    ]
    both = complaints(REROOT_WAREHOUSE="x", REROOT_CATALOG_TIMEOUT_SECONDS="99")
    assert len(both) == 2


# --- misspelt variables


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("REROOT_DATABSE_URL", "REROOT_DATABASE_URL"),
        ("REROOT_DATABASE_URI", "REROOT_DATABASE_URL"),
        ("REROOT_GRACE_SECOND", "REROOT_GRACE_SECONDS"),
        ("REROOT_BORKER_URL", "REROOT_BROKER_URL"),
        ("REROOT_LOG_FROMAT", "REROOT_LOG_FORMAT"),
        ("REROOT_CATALOG_PASWORD_FILE", "REROOT_CATALOG_PASSWORD_FILE"),
        ("reroot_broker_url", "REROOT_BROKER_URL"),
    ],
)
def test_a_slip_of_the_keys_is_an_error_with_a_suggestion(wrong: str, meant: str) -> None:
    assert complaints(**{wrong: "1"}) == (f"{wrong} is not a setting: did you mean {meant}?",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REROOT_TEST_NO_SKIP", "1"),
        ("REROOT_TEST_DATABASE_URL", "1"),
        ("REROOT_SERVICE_HOST", "10.0.0.1"),
        ("REROOT_BROKER_SERVICE_PORT", "6379"),
        ("REROOT_BROKER_SERVICE_PORT_REDIS", "6379"),
        ("REROOT_BROKER_PORT", "tcp://10.0.0.1:6379"),
        ("REROOT_DATABASE_PORT_5432_TCP", "tcp://10.0.0.1:5432"),
        ("REROOT_DATABASE_PORT_5432_TCP_ADDR", "10.0.0.1"),
        ("REROOT_TRASH_DAYS", "7"),
        ("REROOTED", "1"),
        ("PATH", "/bin"),
    ],
)
def test_what_is_no_slip_passes(name: str, value: str) -> None:
    assert load_settings({**WHOLE, name: value}) == load_settings(WHOLE)


# --- files


@pytest.mark.parametrize("name", SECRETS)
def test_each_secret_may_come_from_a_file(name: str, tmp_path: Path) -> None:
    values = {
        "database_url": "postgresql://h/d", "migration_url": "postgresql://h/d", "broker_url": "redis://h",
        "catalog_uri": "http://h", "catalog_properties": '{"a": "b"}',
        "catalog_overrides": '{"w_1": {"auth": "none"}}',
    }  # fmt: skip
    auth = {"catalog_password": "basic", "catalog_token": "token", "catalog_client_secret": "oauth2"}.get(name, "none")
    file = tmp_path / "secret"
    file.write_text(values.get(name, "s3cret") + "\n")
    settings = load_settings({variable(name) + "_FILE": str(file), "REROOT_CATALOG_AUTH": auth})
    shown = {line[0]: line for line in describe(settings)}[variable(name)]
    assert getattr(settings, name)
    assert shown[2] == f"file {file}"


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    gone = tmp_path / "gone"
    text = "\n".join(
        complaints(
            REROOT_BROKER_URL_FILE=str(empty),
            REROOT_DATABASE_URL="",
            REROOT_DATABASE_URL_FILE=str(gone),
            REROOT_MIGRATION_URL="",
            REROOT_MIGRATION_URL_FILE=str(empty),
            REROOT_WAREHOUSE_FILE=str(empty),
        )
    )
    assert "REROOT_BROKER_URL and REROOT_BROKER_URL_FILE are both set" in text
    assert f"REROOT_DATABASE_URL_FILE: cannot read {gone}: No such file or directory" in text
    assert f"REROOT_MIGRATION_URL_FILE: {empty} is empty" in text
    assert "REROOT_WAREHOUSE_FILE: only a secret may come from a file" in text


# --- nothing secret is shown


def test_no_secret_is_in_a_repr_or_in_what_config_prints() -> None:
    settings = load_settings(WHOLE)
    shown = f"{settings!r} {settings} {settings.model_dump()} {describe(settings)}"
    assert "s3cret" not in shown
    assert "postgresql://app:********@pg/control" in shown


def test_no_secret_is_in_an_error() -> None:
    lines = complaints(
        REROOT_CATALOG_PROPERTIES='{"s3.key": "key-s3cret"',
        REROOT_DATABASE_URL="mysql://a:db-s3cret@h",
        REROOT_CATALOG_TOKEN="tok-s3cret",
    )
    assert "s3cret" not in "\n".join(lines)


@pytest.mark.parametrize("parameter", ["password", "sslpassword", "pasword", "passwd"])
def test_a_password_among_the_parameters_is_not_shown(parameter: str) -> None:
    settings = load_settings({"REROOT_DATABASE_URL": f"postgresql://h/db?{parameter}=s3cret&sslmode=require"})
    shown = str(describe(settings))
    assert "s3cret" not in shown
    assert "&sslmode=require" in shown


@pytest.mark.parametrize("name", ["REROOT_DATABASE_URL", "REROOT_MIGRATION_URL"])
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://app:s3cret%zz@h/db", "a % without two hex digits"),
        ("postgresql://app:s3cret%@h/db", "a % without two hex digits"),
        ("postgresql://app:a s3cret@h/db", "a space or a control character"),
        ("postgresql://app:a\ns3cret@h/db", "a space or a control character"),
        ("postgresql://app:s3cret/b@h/db", "its port is not a number"),
        ("postgresql://h:s3cret/db", "its port is not a number"),
        ("postgresql://h:5432,i:s3cret/db", "its port is not a number"),
        ("postgresql://app:a@s3cret@h/db", "its host cannot be read"),
        ("postgresql://app:s3cret@[::1/db", "its host cannot be read"),
    ],
)
def test_an_address_of_postgres_that_libpq_would_quote_is_refused_without_a_quotation(
    name: str, url: str, said: str
) -> None:
    (line,) = complaints(**{name: url})
    assert line.startswith(f"{name}: ")
    assert said in line
    assert "percent-encode the password" in line
    assert "s3cret" not in line


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:s3cret%zz@h/0", "percent-encode the password"),
        ("redis://:a s3cret@h/0", "percent-encode the password"),
        ("redis://:s3cret#b@h:6379/0", "percent-encode the password"),
        ("redis://:12#s3cret@h:6379/0", "percent-encode the password"),
        ("redis://:s3cret/b@h:6379/0", "percent-encode the password"),
        ("redis://h:s3cret/0", "percent-encode the password"),
        ("redis://:s3cret@[::1/0", "percent-encode the password"),
        ("redis://h/s3cret", "its path should be the number of a database"),
        ("redis://h/0;redis://i:s3cret/0", "percent-encode the password"),
    ],
)
def test_an_address_of_the_broker_that_cannot_be_read_is_refused_without_a_quotation(url: str, said: str) -> None:
    (line,) = complaints(REROOT_BROKER_URL=url)
    assert line.startswith("REROOT_BROKER_URL: ")
    assert said in line
    assert "s3cret" not in line


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///db",
        "postgresql://",
        "postgres://h:/db",
        "postgresql+psycopg://app:p%40ss%25@h:5432/db?sslmode=require",
        "postgresql://app:p?a#b:c,d@h/db",
        "postgresql://app@h,i:5433,[::1]:5434/db?target_session_attrs=read-write",
        "postgresql://app@%2Fvar%2Frun/db",
        "postgresql://h?dbname=a@b",
        "redis://",
        "redis://h",
        "redis://h:6379/",
        "redis:///1",
        "redis://user:p%40ss@[::1]:6379/15?ssl_cert_reqs=none",
        "rediss://:p@ss@h/0",
        "redis+socket:///run/valkey.sock?virtual_host=1",
        "redis://h/0;redis://i:6380/0",
    ],
)
def test_an_address_that_can_be_read_is_taken(url: str) -> None:
    name = "REROOT_BROKER_URL" if url.startswith("redis") else "REROOT_DATABASE_URL"
    assert load_settings({name: url})


def test_every_field_that_sounds_secret_is_typed_as_a_secret() -> None:
    secret_words = ("password", "secret", "token", "database_url", "migration_url", "broker_url", "uri")
    in_objects = ("properties", "overrides")
    harmless = {"catalog_oauth2_token_url"}
    words = (*secret_words, *in_objects)
    sounds = {name for name in Settings.model_fields if any(word in name for word in words)} - harmless
    assert set(SECRETS) == sounds
    assert isinstance(load_settings(WHOLE).catalog_uri, SecretStr)


def test_config_says_where_each_value_came_from() -> None:
    origins = {name: origin for name, _, origin in describe(load_settings({"REROOT_QUEUE_WINDOW": "5"}))}
    assert origins["REROOT_QUEUE_WINDOW"] == "environment REROOT_QUEUE_WINDOW"
    assert origins["REROOT_GRACE_SECONDS"] == "default"
    assert set(origins) == {variable(name) for name in Settings.model_fields}


def test_settings_survive_pickling_for_a_spawned_process() -> None:
    settings = load_settings(WHOLE)
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own bytes
