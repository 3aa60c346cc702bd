"""How this client says who it is to a REST catalog.

Responsible for: the ``Authorization`` header, and where the token in it comes from. No header at all where there is
nothing to say: some servers refuse an empty one.
Must not know: what is asked of the catalog.

Tokens are fetched here and not by pyiceberg's managers, which wait without limit for the token endpoint and keep a
revoked token until it expires.
"""

from __future__ import annotations

import math
import re
import time
from base64 import b64encode
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlencode

import msgspec
from pydantic import SecretStr
from urllib3.exceptions import HTTPError

from worker.lakehouse.connection import CatalogAuth
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind
from worker.lakehouse.rest_answers import Answer, read_answer
from worker.lakehouse.rest_errors import Call, error_for, silence_error

if TYPE_CHECKING:
    from urllib3 import PoolManager

    from worker.lakehouse.connection import CatalogConnection

_MARGIN: Final = 60.0
"""Seconds before its end at which a token is no longer used."""
_LIFETIME: Final = 3600.0
"""Seconds for which a token is used whose server does not say how long it lasts."""
_SENDABLE: Final = re.compile(r"[\x20-\x7e\xa0-\xff]*")
"""What a header can carry. Checked here: what http.client says of anything else quotes it whole."""
_NOT_SENDABLE: Final = "holds a line break or another character that no header can carry"


class Authorization(Protocol):
    """Who this client is."""

    def header(self) -> SecretStr | None:
        """The header's value, None for none. Raises CatalogError where a token cannot be had."""
        ...

    def refused(self) -> bool:
        """Note that the server refused the header; True where another one can be had."""
        ...


class Unchanging(Authorization):
    """A header that is known from the start."""

    def __init__(self, value: SecretStr | None) -> None:
        self._value = value

    def header(self) -> SecretStr | None:
        """The header, always the same."""
        return self._value

    def refused(self) -> bool:
        """Nothing else can be said."""
        return False


class Impossible(Authorization):
    """Credentials that cannot be had, and why."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def header(self) -> SecretStr | None:
        """Raises CatalogError: the same kind as where the catalog refuses what it is shown."""
        raise CatalogError(ErrorCode.UNAUTHORIZED, ErrorKind.TRANSIENT, self._problem)

    def refused(self) -> bool:
        """Nothing else can be said."""
        return False


class ClientCredentials(Authorization):
    """OAuth2 client credentials: a token that is fetched when it is needed, and anew before it ends."""

    def __init__(self, connection: CatalogConnection, pool: PoolManager) -> None:
        self._url = connection.oauth2_token_url or ""
        form = {
            "grant_type": "client_credentials",
            "client_id": connection.client_id or "",
            "client_secret": _plain(connection.client_secret),
        }
        if connection.oauth2_scope:
            form["scope"] = connection.oauth2_scope
        self._form = SecretStr(urlencode(form))
        self._pool = pool
        self._held: SecretStr | None = None
        self._until = 0.0
        """When another one is fetched."""
        self._end = 0.0
        """When it is no longer good."""

    def header(self) -> SecretStr | None:
        """The token at hand, or a new one."""
        now = time.monotonic()
        if self._held is None or now >= self._until:
            try:
                token = self._fetch()
            except CatalogError:
                # Fetched before its end so that there is time: what is still good serves until the endpoint is back.
                if self._held is None or now >= self._end:
                    raise
                return self._held
            if not _SENDABLE.fullmatch(token.access_token):
                raise CatalogError(
                    ErrorCode.UNAUTHORIZED, ErrorKind.TRANSIENT, f"the token endpoint's token {_NOT_SENDABLE}"
                )
            lifetime = _lifetime(token.expires_in)
            # A token that lasts a minute or less would be fetched anew for each request otherwise.
            self._until, self._end = now + max(lifetime - _MARGIN, lifetime / 2), now + lifetime
            self._held = SecretStr(f"Bearer {token.access_token}")
        return self._held

    def refused(self) -> bool:
        """Forget the token: it was revoked before its time."""
        self._held = None
        return True

    def _fetch(self) -> _Token:
        about = "from its token endpoint"
        need_scheme(self._url, "the token endpoint's address")
        try:
            response = self._pool.request(
                "POST",
                self._url,
                body=self._form.get_secret_value(),
                headers={"Content-Type": "application/x-www-form-urlencoded"},
                redirect=False,
                retries=False,
            )
        except (HTTPError, OSError, ValueError) as failure:
            raise silence_error(Call.TOKEN, failure, about=about) from None
        if response.status != HTTPStatus.OK:
            raise error_for(Call.TOKEN, _refusal(response.status, response.data), about=about)
        try:
            return msgspec.json.decode(response.data, type=_Token)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise CatalogError(
                ErrorCode.UNREADABLE, ErrorKind.TRANSIENT, "the token endpoint's answer holds no token"
            ) from None


def need_scheme(url: str, what: str) -> None:
    """Raise CatalogError where an address does not say how it is spoken to."""
    if not url.startswith(("http://", "https://")):
        raise CatalogError(ErrorCode.INVALID, ErrorKind.PERMANENT, f"{what} must start with http:// or https://")


class _Token(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: float | str | None = None
    """A number (RFC 6749); some servers quote it."""


def _lifetime(told: float | str | None) -> float:
    """Seconds for which a token is used."""
    try:
        seconds = _LIFETIME if told is None else float(told)
    except ValueError:
        return _LIFETIME
    return seconds if math.isfinite(seconds) else _LIFETIME


class _OAuthError(msgspec.Struct, frozen=True):
    error: str
    error_description: str = ""


def _refusal(status: int, body: bytes) -> Answer:
    try:
        said = msgspec.json.decode(body, type=_OAuthError)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return read_answer(status, body)
    return Answer(status, said.error, said.error_description, is_json=True)


def _plain(secret: SecretStr | None) -> str:
    return "" if secret is None else secret.get_secret_value()


def authorization(connection: CatalogConnection, pool: PoolManager) -> Authorization:
    """What the connection's settings ask for; ``pool`` carries the requests for tokens."""
    if connection.problem is not None:
        return Impossible(connection.problem)
    match connection.auth:
        case CatalogAuth.NONE:
            return Unchanging(None)
        case CatalogAuth.BASIC:
            pair = f"{connection.user or ''}:{_plain(connection.password)}"
            return Unchanging(SecretStr("Basic " + b64encode(pair.encode()).decode()))
        case CatalogAuth.TOKEN:
            token = _plain(connection.token)
            sendable = _SENDABLE.fullmatch(token)
            problem = f"the token {_NOT_SENDABLE}: set it anew, as one line of plain text"
            return Unchanging(SecretStr("Bearer " + token)) if sendable else Impossible(problem)
        case CatalogAuth.OAUTH2:
            return ClientCredentials(connection, pool)
