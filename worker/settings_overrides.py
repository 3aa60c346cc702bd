"""What is different for one warehouse: its own credentials, address or storage, over the settings for all.

Responsible for: the form of ``REROOT_CATALOG_OVERRIDES`` (one JSON object: by warehouse, what differs there), its
complaints, and the values that result for one warehouse.
Must not know: the other settings, or which values the warehouse needs in the end (``settings`` checks the result).

A key is a catalog setting without its ``catalog_``; of a secret there is ``…_file`` too. A key with a dot in it is a
pyiceberg property. Where a warehouse authenticates in another way than the others, nothing of their way is taken over.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Override = dict[str, SecretStr]
"""What differs for one warehouse, by key."""

PLAIN: Final = ("auth", "user", "client_id", "oauth2_token_url", "oauth2_scope")
SECRET: Final = ("uri", "token", "password", "client_secret")
_FILE: Final = "_file"
_OF_AUTH: Final = frozenset(
    {"token", "user", "password", "client_id", "client_secret", "oauth2_token_url", "oauth2_scope"}
)
_EXAMPLE: Final = '{"w_1": {"auth": "token", "token_file": "/run/secrets/w_1"}}'
_KNOWN: Final = frozenset({*PLAIN, *SECRET, *(name + _FILE for name in SECRET)})


def parse(text: str) -> dict[str, dict[str, str]]:
    """The overrides in a JSON text. Raises ValueError, whose text names what is wrong and shows no value."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is no JSON: {error.msg} in line {error.lineno}") from None
    if not isinstance(found, dict):
        raise ValueError(f"should be a JSON object, such as {_EXAMPLE}")  # noqa: TRY004 - pydantic takes ValueErrors
    for warehouse, override in found.items():
        _check(warehouse, override)
    return found


def _check(warehouse: str, override: object) -> None:
    if not isinstance(override, dict):
        raise ValueError(f"warehouse {warehouse}: should be a JSON object of what differs there")  # noqa: TRY004 - see above
    for key, value in override.items():
        if key not in _KNOWN and "." not in key:
            raise ValueError(f"warehouse {warehouse}: {key} is not known; there is {', '.join(sorted(_KNOWN))}")
        if not isinstance(value, str) or not value:
            raise ValueError(f"warehouse {warehouse}: {key} should be a text that is not empty")
        if key.endswith(_FILE) and key.removesuffix(_FILE) in override:
            raise ValueError(f"warehouse {warehouse}: {key.removesuffix(_FILE)} and {key} are both set: keep one")


def overridden(
    override: Override, *, auth: str, properties: Mapping[str, SecretStr], read: Callable[[str], str]
) -> dict[str, object]:
    """The settings of one warehouse that differ, by their names; ``read`` gives the content of a secret's file.

    ``auth`` and ``properties`` are those for all. Raises what ``read`` raises.
    """
    values: dict[str, object] = {}
    if "auth" in override and override["auth"].get_secret_value() != auth:
        values |= dict.fromkeys("catalog_" + name for name in _OF_AUTH)
    for key, value in override.items():
        if key in PLAIN:
            values["catalog_" + key] = value.get_secret_value()
        elif key in SECRET:
            values["catalog_" + key] = value
        elif "." not in key:
            values["catalog_" + key.removesuffix(_FILE)] = SecretStr(read(value.get_secret_value()))
    values["catalog_properties"] = {**properties, **{key: value for key, value in override.items() if "." in key}}
    return values


def content(file: str) -> str:
    """The secret in a file. Raises ValueError, whose text says what is wrong with the file."""
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ValueError(f"cannot read {file}: {reason}") from None
    if not text:
        raise ValueError(f"{file} is empty")
    return text
