"""Settings: every ``REROOT_`` variable, typed and checked before anything starts.

Responsible for: reading the environment (the only module that does), validating it as a whole, and showing it without
its secrets.
Must not know: Celery, SQL, catalogs. What a program needs it asks for (``database()``, ``broker()``, ``catalog()``):
``reroot db upgrade`` must work where only Postgres is known.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError, field_validator

from worker.settings_check import MASK, PREFIX, broker_url_flaw, masked_url, misspelt, postgres_url_flaw, rising
from worker.settings_overrides import Override, content, overridden, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]

MAX_GRACE_SECONDS: Final = 86_400
"""Above a day, orphan-file maintenance through the old pointer would delete files committed through the new one."""

WORKSPACE_HEX: Final = "{workspace_hex}"
"""What a warehouse template replaces by the workspace id's hex digits."""

_KILL_MARGIN: Final = 60.0

_SCHEMES: Final = {
    "database_url": ("postgresql", "postgres"),
    "migration_url": ("postgresql", "postgres"),
    "broker_url": ("redis", "rediss"),
}
_CATALOG_SCHEMES: Final = {"rest": ("http", "https"), "sql": ("postgresql", "postgres", "sqlite")}

_FLAWS: Final = {
    "database_url": postgres_url_flaw,
    "migration_url": postgres_url_flaw,
    "broker_url": broker_url_flaw,
}

_COMPANIONS: Final = {
    "none": ((), ()),
    "token": (("catalog_token",), ()),
    "basic": (("catalog_user", "catalog_password"), ()),
    "oauth2": (
        ("catalog_client_id", "catalog_client_secret", "catalog_oauth2_token_url"),
        ("catalog_oauth2_scope",),
    ),
}
"""By way of authentication: the settings that it needs, and those that it may have."""


class SettingsError(Exception):
    """Settings that cannot be used. ``complaints`` holds one line each; the text is all of them, without a secret."""

    def __init__(self, complaints: list[str]) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = tuple(complaints)


class Settings(BaseModel):
    """All settings. Durations are in seconds. What is secret is a ``SecretStr``: no repr, log or error shows it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    database_url: SecretStr | None = None
    migration_url: SecretStr | None = None
    """The direct way to Postgres, where ``database_url`` goes through a pooler: for migrations and LISTEN."""
    broker_url: SecretStr | None = None

    catalog_type: Literal["rest", "sql"] = "rest"
    catalog_uri: SecretStr | None = None
    warehouse: str | None = None
    warehouse_template: str | None = None
    """Instead of one fixed ``warehouse``: ``w_{workspace_hex}`` and the like."""
    warehouse_location: str | None = None
    """For ``sql``: the root under which its tables lie."""
    catalog_auth: Literal["none", "basic", "token", "oauth2"] = "none"
    catalog_token: SecretStr | None = None
    catalog_user: str | None = None
    catalog_password: SecretStr | None = None
    catalog_client_id: str | None = None
    catalog_client_secret: SecretStr | None = None
    catalog_oauth2_token_url: str | None = None
    catalog_oauth2_scope: str | None = None
    catalog_properties: dict[str, SecretStr] = Field(default_factory=dict)
    """Further pyiceberg properties, such as ``s3.*``; in the environment a JSON object."""
    catalog_overrides: dict[str, Override] = Field(default_factory=dict)
    """By warehouse, what differs there, its credentials above all; a JSON object, best in a mounted file."""

    strategy: Literal["auto", "register", "rename"] = "auto"
    """How a table gets its second name; ``auto`` finds it out per warehouse."""
    grace_seconds: Annotated[Seconds, Field(le=MAX_GRACE_SECONDS)] = 900
    """How long the left name stays readable after the flip: longer than any reader keeps a resolved name."""

    catalog_timeout_seconds: Seconds = 10
    """For one HTTP request."""
    move_deadline_seconds: Seconds = 60
    """For one attempt, by its own clock."""
    soft_time_limit_seconds: Seconds = 90
    time_limit_seconds: Seconds = 120
    visibility_timeout_seconds: Seconds = 1800
    """After which the broker hands a message out again that nobody has acknowledged."""

    queue_window: Count = 1000
    """Messages that may wait in the broker, per queue; the rest waits in the ledger."""
    republish_after_seconds: Seconds = 120
    sweep_interval_seconds: Seconds = 15

    log_format: Literal["json", "console"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("log_level", mode="before")
    @classmethod
    def _any_case(cls, value: str) -> str:
        return value.lower()

    @field_validator("catalog_properties", mode="before")
    @classmethod
    def _from_json(cls, value: object) -> object:
        return _properties(value) if isinstance(value, str) else value

    @field_validator("catalog_overrides", mode="before")
    @classmethod
    def _overrides_from_json(cls, value: object) -> object:
        return parse(value) if isinstance(value, str) else value

    def database(self) -> str:
        """The control plane's URL. Raises SettingsError where it is not set."""
        return self._secret("database_url", "the control plane's Postgres, postgresql://user@host/name")

    def direct_database(self) -> str:
        """The URL that reaches Postgres itself, past a pooler. Raises SettingsError where neither is set."""
        return self.migration_url.get_secret_value() if self.migration_url else self.database()

    def broker(self) -> str:
        """The broker's URL. Raises SettingsError where it is not set."""
        return self._secret("broker_url", "the broker, redis://host:6379/0")

    def catalog(self) -> str:
        """The catalog's URI, once everything that a catalog needs is there. Raises SettingsError for what is not."""
        complaints = _catalog_gaps(self)
        if complaints:
            raise SettingsError(complaints)
        return self._secret("catalog_uri", "")

    @property
    def longest_attempt_seconds(self) -> float:
        """After so long no attempt lives: its process was killed, with time to spare."""
        return self.time_limit_seconds + _KILL_MARGIN

    def warehouse_for(self, workspace_id: str) -> str:
        """The warehouse of a workspace that has no row of its own in ``reroot.tenants``."""
        if self.warehouse is not None:
            return self.warehouse
        if self.warehouse_template is None:
            raise SettingsError([_NO_WAREHOUSE])
        return self.warehouse_template.replace(WORKSPACE_HEX, workspace_id.replace("-", "").lower())

    def of_warehouse(self, warehouse: str, *, read: Callable[[str], str] = content) -> Self:
        """The settings as they are for one warehouse; secrets that lie in files of its own are read now, by ``read``.

        Raises SettingsError where such a file cannot be read.
        """
        override = self.catalog_overrides.get(warehouse)
        if override is None:
            return self
        try:
            changes = overridden(override, auth=self.catalog_auth, properties=self.catalog_properties, read=read)
        except ValueError as error:
            raise SettingsError([_of(warehouse, str(error))]) from None
        return self.model_copy(update={**changes, "catalog_overrides": {}})

    def files(self) -> tuple[str, ...]:
        """The files that settings were read from."""
        return tuple(origin.removeprefix(_FILE) for origin in self._origins.values() if origin.startswith(_FILE))

    def secrets(self) -> frozenset[str]:
        """Every secret value there is, so that a log can be kept clear of them."""
        values = [value for name in type(self).model_fields for value in _secret_values(getattr(self, name))]
        return frozenset(values)

    def _secret(self, name: str, meaning: str) -> str:
        value: SecretStr | None = getattr(self, name)
        if value is None:
            raise SettingsError([f"{variable(name)} is not set: {meaning}"])
        return value.get_secret_value()

    @classmethod
    def _checked(cls, values: Mapping[str, str], origins: Mapping[str, str]) -> Self:
        settings = cls.model_validate(values)
        settings._origins.update(origins)  # noqa: SLF001  # its own class; a frozen model takes it in no other way
        return settings


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def is_secret(name: str) -> bool:
    """Whether a setting is secret, and may therefore come from a file as well."""
    return "SecretStr" in str(Settings.model_fields[name].annotation)


SECRETS: Final = tuple(name for name in Settings.model_fields if is_secret(name))

VARIABLES: Final = frozenset(
    [variable(name) for name in Settings.model_fields] + [variable(name) + "_FILE" for name in SECRETS],
)
"""Every variable that Reroot reads."""

_FILE: Final = "file "

_NO_WAREHOUSE: Final = (
    f"{variable('warehouse')} (one for all) or {variable('warehouse_template')} (such as w_{WORKSPACE_HEX}) must be set"
)


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read and check the settings. Raises SettingsError with everything that is wrong, one line each."""
    found = dict(os.environ if environ is None else environ)  # noqa: TID251  # the one place that reads it
    complaints = misspelt(found, VARIABLES)
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    for name in Settings.model_fields:
        value, origin, complaint = _read(name, found)
        if complaint:
            complaints.append(complaint)
        elif value:
            values[name], origins[name] = value, origin
    try:
        settings = Settings._checked(values, origins)  # noqa: SLF001  # its own module
    except ValidationError as error:
        raise SettingsError(complaints + _invalid(error, values)) from None
    complaints += _contradictions(settings)
    if complaints:
        raise SettingsError(complaints)
    return settings


def describe(settings: Settings) -> list[tuple[str, str, str]]:
    """For ``reroot config``: each variable, its value without secrets, and where it came from."""
    return [
        (variable(name), _shown(name, getattr(settings, name)), settings._origins.get(name, "default"))  # noqa: SLF001  # its own module
        for name in Settings.model_fields
    ]


def _read(name: str, environ: Mapping[str, str]) -> tuple[str, str, str]:
    """Value, origin and complaint of one setting. An empty variable is an unset one, as compose files write it."""
    direct, file = environ.get(variable(name), ""), environ.get(variable(name) + "_FILE", "")
    if not file:
        return direct, f"environment {variable(name)}", ""
    if name not in SECRETS:
        return "", "", f"{variable(name)}_FILE: only a secret may come from a file, set {variable(name)}"
    if direct:
        return "", "", f"{variable(name)} and {variable(name)}_FILE are both set: keep one"
    try:
        return content(file), _FILE + file, ""
    except ValueError as error:
        return "", "", f"{variable(name)}_FILE: {error}"


def _invalid(error: ValidationError, values: Mapping[str, str]) -> list[str]:
    complaints = []
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        name = str(detail["loc"][0])
        reason = detail["msg"].removeprefix("Value error, ").replace("Input should", "should")
        given = "" if name in SECRETS else f"={values[name]}"
        complaints.append(f"{variable(name)}{given}: {reason}")
    return complaints


def _contradictions(settings: Settings) -> list[str]:
    """What is wrong whatever the command: values that exclude one another. What is merely absent is no matter here."""
    return [
        *rising(
            (
                (variable("catalog_timeout_seconds"), settings.catalog_timeout_seconds, False),
                (variable("move_deadline_seconds"), settings.move_deadline_seconds, False),
                (variable("soft_time_limit_seconds"), settings.soft_time_limit_seconds, True),
                (variable("time_limit_seconds"), settings.time_limit_seconds, False),
                (variable("visibility_timeout_seconds"), settings.visibility_timeout_seconds, False),
            )
        ),
        *(_wrong_schemes(settings) or _unreadable(settings)),
        *_wrong_warehouse(settings),
        *_wrong_auth(settings),
        *_wrong_overrides(settings),
    ]


def _wrong_schemes(settings: Settings) -> list[str]:
    expected = {**_SCHEMES, "catalog_uri": _CATALOG_SCHEMES[settings.catalog_type]}
    complaints = []
    for name, schemes in expected.items():
        value: SecretStr | None = getattr(settings, name)
        if value and value.get_secret_value().partition("://")[0].split("+")[0] not in schemes:
            wanted = " or ".join(f"{scheme}://" for scheme in schemes)
            complaints.append(f"{variable(name)}: should begin with {wanted}")
    return complaints


def _unreadable(settings: Settings) -> list[str]:
    """Addresses that whoever connects would refuse, with an error that quotes them."""
    complaints = []
    for name, flaw_of in _FLAWS.items():
        value: SecretStr | None = getattr(settings, name)
        flaw = flaw_of(value.get_secret_value()) if value else ""
        if flaw:
            complaints.append(f"{variable(name)}: {flaw}")
    return complaints


def _wrong_warehouse(settings: Settings) -> list[str]:
    template = settings.warehouse_template
    if template is None:
        return []
    complaints = []
    if settings.warehouse is not None:
        complaints.append(f"{variable('warehouse')} and {variable('warehouse_template')} are both set: keep one")
    rest = template.replace(WORKSPACE_HEX, "")
    if WORKSPACE_HEX not in template or "{" in rest or "}" in rest:
        complaints.append(
            f"{variable('warehouse_template')}={template}: should hold {WORKSPACE_HEX} and no other braces"
        )
    return complaints


def _wrong_auth(settings: Settings) -> list[str]:
    auth = settings.catalog_auth
    if settings.catalog_type == "sql" and auth != "none":
        return [f"{variable('catalog_auth')}={auth}: a sql catalog takes its credentials from its URI; set none"]
    used = {name for names in _COMPANIONS[auth] for name in names}
    others = [name for needed, optional in _COMPANIONS.values() for name in (*needed, *optional) if name not in used]
    return [
        f"{variable(name)} is set, but {variable('catalog_auth')}={auth} does not use it"
        for name in others
        if getattr(settings, name) is not None
    ]


def _wrong_overrides(settings: Settings) -> list[str]:
    """What a warehouse's own settings and those for all do not make together. No file is read yet."""
    complaints = []
    for warehouse, override in settings.catalog_overrides.items():
        merged = settings.of_warehouse(warehouse, read=str)
        if merged.catalog_auth not in _COMPANIONS:
            found = [f"auth={merged.catalog_auth}: should be one of {', '.join(_COMPANIONS)}"]
        else:
            found = [*_wrong_auth(merged), *_auth_gaps(merged), *(_wrong_schemes(merged) if "uri" in override else [])]
        complaints += [_of(warehouse, line) for line in found]
    return complaints


def _of(warehouse: str, complaint: str) -> str:
    return f"{variable('catalog_overrides')}: warehouse {warehouse}: {complaint}"


def _catalog_gaps(settings: Settings) -> list[str]:
    complaints = []
    if settings.catalog_uri is None:
        complaints.append(f"{variable('catalog_uri')} is not set: where the catalog is served")
    if settings.warehouse is None and settings.warehouse_template is None:
        complaints.append(_NO_WAREHOUSE)
    if settings.catalog_type == "sql" and settings.warehouse_location is None:
        complaints.append(f"{variable('warehouse_location')} is not set: a sql catalog needs the root of its tables")
    return complaints + _auth_gaps(settings)


def _auth_gaps(settings: Settings) -> list[str]:
    needed, _ = _COMPANIONS[settings.catalog_auth]
    return [
        f"{variable(name)} is not set: {variable('catalog_auth')}={settings.catalog_auth} needs it"
        for name in needed
        if getattr(settings, name) is None
    ]


def _properties(text: str) -> dict[str, str]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise ValueError('should be a JSON object of property names and values, such as {"s3.region": "auto"}')  # noqa: TRY004  # pydantic takes a ValueError as a complaint
    return {str(key): inner if isinstance(inner, str) else json.dumps(inner) for key, inner in value.items()}


def _secret_values(value: object) -> list[str]:
    if isinstance(value, SecretStr):
        return [value.get_secret_value()]
    return [text for inner in value.values() for text in _secret_values(inner)] if isinstance(value, dict) else []


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "(not set)"
    if name == "catalog_overrides":
        return f"{len(value)} warehouses"
    if isinstance(value, dict):
        return json.dumps(dict.fromkeys(value, MASK))
    if isinstance(value, SecretStr):
        shown = masked_url(value.get_secret_value())
        return shown if name.endswith(("_url", "_uri")) else MASK
    return f"{value:g}" if isinstance(value, float) else masked_url(str(value))
