"""What differs for one warehouse: which values result, and what is refused before anything starts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.test_settings import WHOLE
from worker.settings import Settings, SettingsError, describe, load_settings
from worker.telemetry import sensitive

if TYPE_CHECKING:
    from pathlib import Path


def settings(overrides: Any, **changes: str) -> Settings:
    text = overrides if isinstance(overrides, str) else json.dumps(overrides)
    return load_settings({**WHOLE, **changes, "REROOT_CATALOG_OVERRIDES": text})


def complaint(overrides: Any, **changes: str) -> str:
    with pytest.raises(SettingsError) as caught:
        settings(overrides, **changes)
    (line,) = caught.value.complaints
    return line


def test_a_warehouse_without_its_own_is_as_the_others() -> None:
    whole = settings({"w_1": {"client_id": "one"}})
    assert whole.of_warehouse("w_2") is whole


def test_what_differs_replaces_and_what_does_not_stays() -> None:
    own = settings({"w_1": {"client_id": "one", "client_secret": "s-one", "s3.region": "eu"}}).of_warehouse("w_1")
    assert own.catalog_client_id == "one"
    assert own.catalog_client_secret is not None
    assert own.catalog_client_secret.get_secret_value() == "s-one"
    assert own.catalog_oauth2_token_url == WHOLE["REROOT_CATALOG_OAUTH2_TOKEN_URL"]
    assert own.catalog() == WHOLE["REROOT_CATALOG_URI"]
    properties = {name: value.get_secret_value() for name, value in own.catalog_properties.items()}
    assert properties == {"s3.access-key-id": "key-s3cret", "s3.region": "eu"}


def test_another_way_to_authenticate_takes_nothing_over_from_the_first() -> None:
    own = settings({"w_1": {"auth": "token", "token": "t"}}).of_warehouse("w_1")
    assert (own.catalog_auth, own.catalog_client_id, own.catalog_client_secret) == ("token", None, None)
    assert settings({"w_1": {"auth": "none"}}).of_warehouse("w_1").catalog_oauth2_token_url is None


def test_an_address_may_differ() -> None:
    own = settings({"w_1": {"uri": "https://other.example"}}).of_warehouse("w_1")
    assert own.catalog() == "https://other.example"


def test_a_secret_in_a_file_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "w_1"
    whole = settings({"w_1": {"auth": "token", "token_file": str(file)}})
    with pytest.raises(SettingsError, match=r"warehouse w_1: cannot read .*: No such file"):
        whole.of_warehouse("w_1")
    for content in ("first", "second"):
        file.write_text(content + "\n")
        token = whole.of_warehouse("w_1").catalog_token
        assert token is not None
        assert token.get_secret_value() == content


def test_all_of_it_may_lie_in_a_mounted_file(tmp_path: Path) -> None:
    file = tmp_path / "overrides.json"
    file.write_text(json.dumps({"w_1": {"client_id": "one"}}))
    whole = load_settings({**WHOLE, "REROOT_CATALOG_OVERRIDES_FILE": str(file)})
    assert whole.of_warehouse("w_1").catalog_client_id == "one"
    assert str(file) in whole.files()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("{", "is no JSON"),
        ([], "should be a JSON object, such as"),
        ({"w_1": "token"}, "warehouse w_1: should be a JSON object"),
        ({"w_1": {"tokne": "x"}}, "warehouse w_1: tokne is not known; there is auth, client_id"),
        ({"w_1": {"auth": "token", "token": ""}}, "warehouse w_1: token should be a text"),
        ({"w_1": {"auth": "token", "token": 7}}, "warehouse w_1: token should be a text"),
        ({"w_1": {"token": "x", "token_file": "y"}}, "warehouse w_1: token and token_file are both set"),
        ({"w_1": {"auth": "kerberos"}}, "warehouse w_1: auth=kerberos: should be one of none, token, basic, oauth2"),
        ({"w_1": {"auth": "token"}}, "warehouse w_1: REROOT_CATALOG_TOKEN is not set: REROOT_CATALOG_AUTH=token needs"),
        ({"w_1": {"password": "x"}}, "warehouse w_1: REROOT_CATALOG_PASSWORD is set, but REROOT_CATALOG_AUTH=oauth2"),
        ({"w_1": {"uri": "ftp://x"}}, "warehouse w_1: REROOT_CATALOG_URI: should begin with http:// or https://"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_the_start(overrides: Any, said: str) -> None:
    line = complaint(overrides)
    assert line.startswith("REROOT_CATALOG_OVERRIDES")
    assert said in line


def test_no_secret_of_a_warehouse_is_shown() -> None:
    whole = settings({"w_1": {"auth": "token", "token": "own-s3cret"}})
    assert "own-s3cret" not in f"{whole!r} {describe(whole)} {whole.of_warehouse('w_1')!r}"
    assert ("REROOT_CATALOG_OVERRIDES", "1 warehouses") in [line[:2] for line in describe(whole)]
    assert "own-s3cret" in whole.secrets()
    assert "own-s3cret" in sensitive(whole.of_warehouse("w_1"))
    assert "own-s3cret" not in complaint({"w_1": {"auth": "token", "token": "own-s3cret", "tokne": "own-s3cret"}})
