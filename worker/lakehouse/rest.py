"""The adapter for Iceberg REST catalogs: each call of the port is one request.

Responsible for: addresses, bodies, and the few fields of an answer that the protocol needs.
Must not know: how a request travels (``rest_wire``), what a refusal means (``rest_errors``), what a move is.

A thin client instead of pyiceberg's, because the protocol's decisions hang on the error's type, on who sends what
again, and on a rename that is one request.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import msgspec

from worker.identifiers import TableIdentifier
from worker.lakehouse import cleaning
from worker.lakehouse.history import snapshots
from worker.lakehouse.locations import may_be_local, normalise
from worker.lakehouse.metadata import MetadataDocument, MetadataError, table_from
from worker.lakehouse.port import Catalog, CatalogError, ErrorCode, ErrorKind, Snapshot, Table
from worker.lakehouse.rest_answers import origin, same_origin
from worker.lakehouse.rest_errors import Call
from worker.lakehouse.rest_wire import Request, Session, Wire, unreadable
from worker.lakehouse.soak import soak
from worker.lakehouse.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from worker.lakehouse.storage import Storages

_PAGE_SIZE: Final = "1000"
_SEPARATOR: Final = "%1F"
_RENAME_ENDPOINT: Final = "POST /v1/{prefix}/tables/rename"
_REGISTER_ENDPOINT: Final = "POST /v1/{prefix}/namespaces/{namespace}/register"
_VIEW_ENDPOINT: Final = "GET /v1/{prefix}/namespaces/{namespace}/views/{view}"
_KEPT: Final = 600.0
"""Seconds for which it is believed what a catalog said of its use, and that it hands out no credentials."""
_SOON: Final = 60.0
"""Seconds for which the old answer goes on being used where the catalog does not give a new one."""
_NO_STATEMENT: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.NOT_ACCEPTABLE,
        HTTPStatus.NOT_IMPLEMENTED,
    }
)
"""How a HEAD is answered for what is not there, or where it is not served: an answer to a HEAD has no type."""
_WRONG_WAY: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND})
_NOT_OF_A_NAME: Final = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.UNCLEAR, ErrorCode.INVALID})
"""With one of those statuses: how a catalog answers at an address that it does not serve, or no longer."""
_REFUSES_TO_VEND: Final = frozenset({ErrorCode.INVALID, ErrorCode.NOT_OFFERED})
"""How a catalog answers that has no credential to hand out (Gravitino: 400 without a provider, 406 with several)."""
_NOT_FOR_STORAGE: Final = "py-io-impl"
"""A server may name the class that opens files; only this machine's own settings choose code."""


class Config(msgspec.Struct, frozen=True):
    """The answer to the question how a catalog is used. Some gateways write null for nothing."""

    defaults: dict[str, Any] | None = None
    overrides: dict[str, Any] | None = None
    endpoints: list[str] | None = None


class _StorageCredential(msgspec.Struct, frozen=True):
    prefix: str
    config: dict[str, str] = {}


class _Loaded(msgspec.Struct, frozen=True):
    metadata: MetadataDocument
    metadata_location: str | None = msgspec.field(name="metadata-location", default=None)
    config: dict[str, str] | None = None
    storage_credentials: list[_StorageCredential] | None = msgspec.field(name="storage-credentials", default=None)


class _Identifier(msgspec.Struct, frozen=True):
    namespace: tuple[str, ...]
    name: str


class _Page(msgspec.Struct, frozen=True):
    identifiers: list[_Identifier] = []
    next_page_token: str | None = msgspec.field(name="next-page-token", default=None)


@dataclass(frozen=True, slots=True)
class _Usage:
    """What a catalog says about how it is used: asked once per process and warehouse, and then every ten minutes.

    Not for ever: a warehouse that is made anew has another prefix, and a gateway's own ``{}`` looks like an answer.
    """

    address: str
    root: str
    separator: str
    endpoints: frozenset[str] | None
    page_size: str
    storage: Mapping[str, str] = field(repr=False)


_LOADED: Final = msgspec.json.Decoder(_Loaded)
_PAGE: Final = msgspec.json.Decoder(_Page)


class RestCatalog(Catalog):
    """One warehouse of a REST catalog."""

    def __init__(self, warehouse: str, session: Session, storages: Storages) -> None:
        self._warehouse = warehouse
        self._session = session
        self._properties = session.properties
        self._vends = session.vends
        self._no_vending_until = 0.0
        self._wire = Wire(session)
        self._storages = storages
        self._usage: _Usage | None = None
        self._usage_until = 0.0

    def load(self, identifier: TableIdentifier) -> Table:
        """GET the table, with a credential for its files where the catalog hands out any."""
        body = self._loaded(identifier)
        try:
            return _table(identifier, _LOADED.decode(body))
        except MetadataError as error:
            raise unreadable(Call.LOAD, str(identifier), f"cannot be understood: {error}") from error
        except Exception as error:
            raise unreadable(Call.LOAD, str(identifier), f"cannot be understood: {cleaning.told(error)}") from error

    def register(self, identifier: TableIdentifier, metadata_location: str) -> None:
        """POST to the namespace's ``register``, never with ``overwrite``."""
        self._need(_REGISTER_ENDPOINT, "register")
        body = {"name": identifier.name, "metadata-location": metadata_location, "overwrite": False}
        where = f"{self._namespace(identifier.namespace)}/register"
        self._send(Call.REGISTER, "POST", where, about=str(identifier), body=body)

    def rename(self, source: TableIdentifier, target: TableIdentifier) -> None:
        """POST to ``tables/rename``."""
        self._need(_RENAME_ENDPOINT, "rename")
        body = {"source": _identifier(source), "destination": _identifier(target)}
        self._send(Call.RENAME, "POST", "/tables/rename", about=f"{source} to {target}", body=body)

    def drop(self, identifier: TableIdentifier) -> None:
        """DELETE the table, not purged."""
        # One server purges when nothing is said.
        where = self._table(identifier) + "?purgeRequested=false"
        self._send(Call.DROP, "DELETE", where, about=str(identifier))

    def create_namespace(self, namespace: tuple[str, ...]) -> None:
        """POST to ``namespaces``."""
        body = {"namespace": list(namespace), "properties": {}}
        self._send(Call.CREATE_NAMESPACE, "POST", "/namespaces", about=".".join(namespace), body=body)

    def namespace_exists(self, namespace: tuple[str, ...]) -> bool:
        """GET the namespace."""
        try:
            self._send(Call.NAMESPACE, "GET", self._namespace(namespace), about=".".join(namespace))
        except CatalogError as error:
            if error.code is ErrorCode.NAMESPACE_MISSING:
                return False
            raise
        return True

    def table_exists(self, identifier: TableIdentifier) -> bool:
        """HEAD the table."""
        request = Request(Call.EXISTS, "HEAD", self._used().root + self._table(identifier), str(identifier))
        try:
            self._wire.send(request)
        except CatalogError:
            if self._wire.answered in _NO_STATEMENT:
                return False
            raise
        return True

    def view_exists(self, identifier: TableIdentifier) -> bool:
        """GET the view, where the server says that it has views at all."""
        endpoints = self._used().endpoints
        if endpoints is None or _VIEW_ENDPOINT not in endpoints:
            return False
        where = f"{self._namespace(identifier.namespace)}/views/{quote(identifier.name, safe='')}"
        try:
            self._send(Call.VIEW, "GET", where, about=str(identifier))
        except CatalogError as error:
            if error.code in {ErrorCode.TABLE_MISSING, ErrorCode.NAMESPACE_MISSING}:
                return False
            raise
        return True

    def list_tables(self, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        """GET page after page."""
        about = "of " + ".".join(namespace)
        token: str | None = ""
        seen: set[str] = set()
        while token is not None:
            seen.add(token)
            query = urlencode({"pageToken": token, "pageSize": self._used().page_size})
            body = self._send(Call.LIST, "GET", f"{self._namespace(namespace)}/tables?{query}", about=about)
            try:
                page = _PAGE.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise unreadable(Call.LIST, about, f"cannot be understood: {error}") from error
            for entry in page.identifiers:
                yield TableIdentifier(entry.namespace, entry.name)
            token = page.next_page_token or None
            if token in seen:
                raise unreadable(Call.LIST, about, "leads back to a page that was read already")

    def soak(self, table: Table, *, accept_unsupported: bool = False) -> tuple[str, ...]:
        """Read the table with the options that its GET and the catalog's config handed out."""
        return soak(table, self._storage(table), accept_unsupported=accept_unsupported)

    def snapshots(self, table: Table) -> tuple[Snapshot, ...]:
        """From the metadata file, with the storage options of this very table."""
        return snapshots(table, self._storage(table))

    def file_missing(self, location: str, table: Table) -> bool:
        """Ask storage, with the table's own metadata file as the positive control."""
        return self._storage(table).certainly_missing(normalise(location), beside=table.metadata_location)

    def _loaded(self, identifier: TableIdentifier) -> bytes:
        request = Request(Call.LOAD, "GET", self._used().root + self._table(identifier), str(identifier))
        if not self._vends or time.monotonic() < self._no_vending_until:
            return self._sent(request)
        try:
            return self._wire.send(replace(request, vending=True))
        except CatalogError as error:
            if error.code not in _REFUSES_TO_VEND:
                self._doubt_usage(error)
                raise
        body = self._sent(request)
        # Not for ever: what was refused may have been something else, and over by the second request.
        self._no_vending_until = time.monotonic() + _KEPT
        return body

    # Addresses.

    def _send(self, call: Call, method: str, where: str, *, about: str, body: object = None) -> bytes:
        content = None if body is None else msgspec.json.encode(body)
        return self._sent(Request(call, method, self._used().root + where, about, content))

    def _sent(self, request: Request) -> bytes:
        try:
            return self._wire.send(request)
        except CatalogError as error:
            self._doubt_usage(error)
            raise

    def _doubt_usage(self, error: CatalogError) -> None:
        """Have it asked again before the next request, where this one may have gone astray."""
        astray = error.code in _NOT_OF_A_NAME and self._wire.answered in _WRONG_WAY
        if astray or error.code is ErrorCode.UNREADABLE:
            self._usage = None

    def _namespace(self, namespace: tuple[str, ...]) -> str:
        return "/namespaces/" + self._used().separator.join(quote(level, safe="") for level in namespace)

    def _table(self, identifier: TableIdentifier) -> str:
        return f"{self._namespace(identifier.namespace)}/tables/{quote(identifier.name, safe='')}"

    def _need(self, endpoint: str, name: str) -> None:
        endpoints = self._used().endpoints
        if endpoints is not None and endpoint not in endpoints:
            raise CatalogError(ErrorCode.NOT_OFFERED, ErrorKind.PERMANENT, f"the catalog does not offer {name}")

    def _used(self) -> _Usage:
        if self._usage is None or time.monotonic() >= self._usage_until:
            try:
                self._usage = self._ask_usage()
            except CatalogError:
                if self._usage is None:
                    raise
                # Nothing says that it is wrong, only that it is old.
                self._usage_until = time.monotonic() + _SOON
            else:
                self._wire.point_to(self._usage.address)
                self._usage_until = time.monotonic() + _KEPT
        return self._usage

    def _ask_usage(self) -> _Usage:
        about = f"for warehouse {self._warehouse}"
        target = "/v1/config?" + urlencode({"warehouse": self._warehouse})
        # At the address of the settings, also where the last answer led away from it.
        body = Wire(self._session).send(Request(Call.CONFIG, "GET", target, about))
        try:
            config = msgspec.json.decode(body, type=Config)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise unreadable(Call.CONFIG, about, f"cannot be understood: {error}") from error
        overrides = _texts(config.overrides or {})
        told = {**_texts(config.defaults or {}), **self._properties, **overrides}
        prefix = told.get("prefix", "").strip("/")
        address = overrides.get("uri", self._session.address)
        if not same_origin(address, self._session.address):
            why = f"it leads to {origin(address)}, and credentials are sent to the server of REROOT_CATALOG_URI alone"
            raise CatalogError(
                ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT, f"the catalog did not {Call.CONFIG} {about}: {why}"
            )
        return _Usage(
            address=address,
            root=f"/v1/{prefix}" if prefix else "/v1",
            separator=told.get("namespace-separator", _SEPARATOR),
            endpoints=None if not config.endpoints else frozenset(config.endpoints),
            page_size=told.get("rest-page-size", _PAGE_SIZE),
            storage=_own_code_only(told, self._properties),
        )

    def _storage(self, table: Table) -> Storage:
        common = self._used().storage
        # What the catalog itself says of the table decides, and never a path in a file that a tenant wrote.
        local = may_be_local(self._session.warehouse_location, table.metadata_location, table.location)
        if not table.storage:
            return self._storages.with_options(common, local=local)
        # What came with a table is that table's alone, and goes when the job is through with it.
        return Storage(self._options(table), local=local)

    def _options(self, table: Table) -> dict[str, str]:
        return _own_code_only({**self._used().storage, **table.storage}, self._properties)


def _identifier(identifier: TableIdentifier) -> dict[str, object]:
    return {"namespace": list(identifier.namespace), "name": identifier.name}


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else str(value) for name, value in values.items() if value is not None
    }


def _own_code_only(options: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in options.items() if name != _NOT_FOR_STORAGE}
    if _NOT_FOR_STORAGE in own:
        kept[_NOT_FOR_STORAGE] = own[_NOT_FOR_STORAGE]
    return kept


def _table(identifier: TableIdentifier, loaded: _Loaded) -> Table:
    if not loaded.metadata_location:
        raise MetadataError("it names no metadata location")
    return table_from(identifier, loaded.metadata_location, loaded.metadata, _storage_options(loaded))


def _storage_options(loaded: _Loaded) -> dict[str, str]:
    """What the catalog hands out for the table: its config, and over it the credential of the longest prefix."""
    options = dict(loaded.config or {})
    fitting = [
        credential
        for credential in loaded.storage_credentials or ()
        if (loaded.metadata_location or "").startswith(credential.prefix)
    ]
    if fitting:
        options.update(max(fitting, key=lambda credential: len(credential.prefix)).config)
    return options
