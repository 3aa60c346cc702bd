"""What a REST catalog is asked in an inspection before any table is: is it alive, are we let in, what can it do.

Responsible for: these questions, and what the answers mean for moves.
Must not know: tables and storage (``inspection``, ``scratch``).

Every question is a GET. A 401 means alive: it asks for credentials, as it should.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec
from urllib3.exceptions import HTTPError

from worker.inspection import Findings, skewed
from worker.lakehouse.cleaning import one_line
from worker.lakehouse.connection import CatalogAuth
from worker.lakehouse.port import CatalogError, ErrorCode
from worker.lakehouse.rest import Config
from worker.lakehouse.rest_answers import carries_error, origin, read_answer
from worker.lakehouse.rest_errors import Call, error_for, silence_error
from worker.lakehouse.rest_wire import unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.lakehouse.connection import CatalogConnection
    from worker.lakehouse.rest_wire import Session

_AWAY: Final = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})
_REFUSED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, 419})
_WANTED: Final = {
    "register": "POST /v1/{prefix}/namespaces/{namespace}/register",
    "rename": "POST /v1/{prefix}/tables/rename",
    "drop": "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD": "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
}
_VERSIONS: Final = (
    ("management/v1/info", "Lakekeeper", ("version",)),
    ("api/version", "Gravitino", ("version", "version")),
    ("api/v2/config", "Nessie, its API", ("specVersion",)),
)
"""Where servers tell their version, beside the catalog's own address: path, name, and the way to it in the answer."""
_NONE_SET: Final = "none are set, and the catalog asks for some"
_VARIABLES: Final = {
    CatalogAuth.NONE: "REROOT_CATALOG_AUTH (basic, token or oauth2)",
    CatalogAuth.BASIC: "REROOT_CATALOG_USER and REROOT_CATALOG_PASSWORD",
    CatalogAuth.TOKEN: "REROOT_CATALOG_TOKEN",
    CatalogAuth.OAUTH2: "REROOT_CATALOG_CLIENT_ID, _CLIENT_SECRET, _OAUTH2_TOKEN_URL and _OAUTH2_SCOPE",
}


@dataclass(frozen=True, slots=True)
class _Heard:
    """One answer, whatever it is."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    def json(self) -> Any:
        """The body, an empty object where it is none."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}

    def said(self) -> str:
        """The status and what the server says with it."""
        answer = read_answer(self.status, self.body)
        return " ".join(part for part in (str(self.status), one_line(answer.type), one_line(answer.message)) if part)


class _Config(Config, frozen=True):
    """The same type as moves read, so that what is green here can be used there."""

    idempotency_key_lifetime: Any = msgspec.field(name="idempotency-key-lifetime", default=None)

    def told(self) -> dict[str, Any]:
        """What it says about the use of the catalog."""
        return {**(self.defaults or {}), **(self.overrides or {})}


class RestInspection:
    """The questions to one warehouse of a REST catalog."""

    def __init__(self, findings: Findings, connection: CatalogConnection, session: Session, warehouse: str) -> None:
        self._findings = findings
        self._auth = connection.auth
        self._session = session
        self._warehouse = warehouse
        self._address = session.address.rstrip("/").removesuffix("/v1")
        self._config = f"{self._address}/v1/config?{urlencode({'warehouse': warehouse})}"

    def run(self) -> bool:
        """Ask; whether the warehouse can be used with the credentials there are."""
        try:
            stranger = self._ask(self._config, known=False)
        except CatalogError as error:
            self._findings.red("alive", str(error), "see that it runs, and REROOT_CATALOG_URI", away=True)
            return False
        if not self._alive(stranger):
            return False
        self._version(stranger)
        self._clock(stranger)
        heard = self._let_in(stranger)
        config = None if heard is None else self._known_warehouse(heard)
        if config is None:
            return False
        listing = self._listing(config)
        ours = self._listed(listing, known=True)
        if stranger.status not in _REFUSED and not self._protected(listing, ours):
            return False
        self._offers(config, ours)
        return True

    def _ask(self, url: str, *, known: bool) -> _Heard:
        headers = dict(self._session.headers)
        header = self._session.authorization.header() if known else None
        if header is not None:
            headers["Authorization"] = header.get_secret_value()
        begun = time.monotonic()
        try:
            response = self._session.pool.request("GET", url, headers=headers, redirect=False, retries=False)
            return _Heard(response.status, response.headers, response.data, time.monotonic() - begun)
        except (HTTPError, OSError, ValueError) as failure:
            raise silence_error(Call.CONFIG, failure, about=f"for warehouse {self._warehouse}") from None

    def _alive(self, heard: _Heard) -> bool:
        if heard.status in _AWAY:
            says = f"{heard.said()}: scaled to zero or restarting; jobs wait, and lose no attempt"
            self._findings.red("alive", says, "wait, or start it", away=True)
            return False
        if HTTPStatus.MULTIPLE_CHOICES <= heard.status < HTTPStatus.BAD_REQUEST:
            there = one_line(origin(heard.headers.get("Location", "")))
            says = f"{heard.status}: it redirects to {there}, which is not followed"
            self._findings.red("alive", says, "set REROOT_CATALOG_URI to where it is served")
            return False
        self._findings.green("alive", f"answers in {heard.seconds * 1000:.0f} ms")
        return True

    def _version(self, heard: _Heard) -> None:
        server = heard.headers.get("Server", "")
        parent = self._address.rpartition("/")[0] if urlsplit(self._address).path.strip("/") else self._address
        for path, name, way in _VERSIONS:
            told = self._told(f"{parent}/{path}", way)
            if told:
                self._findings.green("version", f"{name} {told}")
                return
        self._findings.green("version", f"not told{f' (it calls itself {one_line(server)})' if server else ''}")

    def _told(self, url: str, way: tuple[str, ...]) -> str:
        try:
            heard = self._ask(url, known=True)
        except CatalogError:
            return ""
        found = heard.json() if heard.status == HTTPStatus.OK else {}
        for step in way:
            found = found.get(step) if isinstance(found, dict) else None
        return one_line(found) if isinstance(found, str) else ""

    def _clock(self, heard: _Heard) -> None:
        try:
            theirs = parsedate_to_datetime(heard.headers.get("Date", "")).timestamp()
        except ValueError:
            self._findings.green("clock", "not told")
            return
        skewed(self._findings, "its clock", theirs - (time.time() - heard.seconds / 2), harmless=False)

    def _let_in(self, stranger: _Heard) -> _Heard | None:
        """The answer to us; None where we are not let in. Somebody without credentials is the control."""
        variables = _VARIABLES[self._auth]
        if self._auth is CatalogAuth.NONE:
            if stranger.status in _REFUSED:
                self._findings.red("credentials", f"{_NONE_SET}: {stranger.said()}", variables)
                return None
            return stranger
        try:
            heard = self._ask(self._config, known=True)
        except CatalogError as error:
            self._findings.red("credentials", str(error), variables, away=error.code is ErrorCode.UNAVAILABLE)
            return None
        if heard.status in _REFUSED:
            self._findings.red("credentials", f"refused: {heard.said()}", variables)
            return None
        if stranger.status in _REFUSED:
            self._findings.green("credentials", f"{self._auth} is accepted; without it the answer is {stranger.status}")
        return heard

    def _protected(self, listing: str, ours: _Heard | None) -> bool:
        """Look who may list namespaces, where everybody may read the configuration; False where we are refused."""
        variables = _VARIABLES[self._auth]
        if self._auth is CatalogAuth.NONE:
            if ours is not None and ours.status in _REFUSED:
                self._findings.red("credentials", f"{_NONE_SET}: {ours.said()}", variables)
                return False
            says = "the catalog asks for none: every client that reaches it may change it"
            self._findings.yellow("credentials", says, "turn authentication on, or let only Reroot reach it")
            return True
        theirs = self._listed(listing, known=False)
        we_may = ours is not None and ours.status == HTTPStatus.OK
        if theirs is not None and theirs.status == HTTPStatus.OK:
            says = f"{self._auth} is accepted, and so is a request without any"
            self._findings.yellow("credentials", says, "turn authentication on in the catalog")
        elif we_may and theirs is not None and theirs.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            self._findings.green("credentials", f"{self._auth} is accepted; without it the answer is {theirs.status}")
        else:
            heard = theirs if we_may else ours
            why = "no answer" if heard is None else heard.said()
            self._findings.yellow("credentials", f"whether {self._auth} is accepted was not seen: {why}", variables)
        return True

    def _listing(self, config: _Config) -> str:
        """Where the first namespace is listed."""
        told = config.told()
        address = str(told.get("uri") or self._address).rstrip("/").removesuffix("/v1")
        if origin(address) != origin(self._address):
            address = self._address  # credentials go to no server that the settings do not name
        prefix = str(told.get("prefix") or "").strip("/")
        query = urlencode({"pageToken": "", "pageSize": "1"})
        return f"{address}/v1{f'/{prefix}' if prefix else ''}/namespaces?{query}"

    def _listed(self, url: str, *, known: bool) -> _Heard | None:
        try:
            return self._ask(url, known=known)
        except CatalogError:
            return None

    def _known_warehouse(self, heard: _Heard) -> _Config | None:
        """What the catalog says of the warehouse; None where a move could not go by it."""
        about = f"for warehouse {self._warehouse}"
        if heard.status != HTTPStatus.OK or carries_error(heard.body):
            error = error_for(Call.CONFIG, read_answer(heard.status, heard.body), about=about)
            remedy = "see REROOT_WAREHOUSE or _TEMPLATE, and that it is in the catalog"
            self._findings.red("warehouse", str(error), remedy)
            return None
        try:
            return msgspec.json.decode(heard.body, type=_Config)
        except (msgspec.DecodeError, UnicodeDecodeError) as failure:
            error = unreadable(Call.CONFIG, about, f"cannot be understood: {one_line(str(failure))}")
            remedy = (
                "see that REROOT_CATALOG_URI leads to an Iceberg REST catalog, and to nothing that stands before it"
            )
            self._findings.red("warehouse", str(error), remedy)
            return None

    def _offers(self, config: _Config, listed: _Heard | None) -> None:
        told = config.told()
        self._endpoints(config.endpoints)
        size, separator = told.get("rest-page-size"), told.get("namespace-separator")
        parts = [self._paging(listed)] + ([f"{size} a page"] if size else [])
        parts += [f"levels parted by {separator}"] if separator else []
        lifetime = told.get("idempotency-key-lifetime") or config.idempotency_key_lifetime
        parts.append(f"idempotency keys for {lifetime}" if lifetime else "no idempotency keys")
        self._findings.green("usage", ", ".join(parts))

    def _paging(self, heard: _Heard | None) -> str:
        """Whether listings come in pages, seen on the namespaces."""
        page = heard.json() if heard is not None and heard.status == HTTPStatus.OK else {}
        if isinstance(page, dict) and page.get("next-page-token"):
            return "listings in pages"
        names = page.get("namespaces") if isinstance(page, dict) else None
        whole = isinstance(names, list) and len(names) > 1
        return "listings whole, whatever the page's size" if whole else "paging not seen: there is too little to list"

    def _endpoints(self, listed: list[str] | None) -> None:
        if not listed:
            says = "it does not say what it offers: that is found out when it is needed"
            self._findings.yellow("offers", says, "reroot doctor --probe tries it")
            return
        offered = [name for name, endpoint in _WANTED.items() if endpoint in listed]
        lacking = [name for name in _WANTED if name not in offered]
        says = ", ".join(offered) + (f"; not {', '.join(lacking)}" if lacking else "")
        if "drop" in lacking or {"register", "rename"} <= set(lacking):
            self._findings.red("offers", says, "a move needs drop, and register or rename")
        elif "rename" in lacking:
            remedy = "withdrawing is a look and a DELETE: let nothing write to tables past their dataset's lock"
            self._findings.yellow("offers", says, remedy)
        else:
            self._findings.green("offers", says)
