"""The double itself: warehouses behind a listener on loopback, and what a test does to them by hand."""

from __future__ import annotations

import base64
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.support.rest_double import namespaces, pointers, tables
from tests.support.rest_double.access import Grants, Rights
from tests.support.rest_double.files import Files
from tests.support.rest_double.gravitino import Gravitino
from tests.support.rest_double.lakekeeper import Lakekeeper
from tests.support.rest_double.refusals import Refused, RefusedInText
from tests.support.rest_double.routes import Kind, Route, route_of
from tests.support.rest_double.scene import NO_CONTENT, Scene, json_answer
from tests.support.rest_double.temperament import CORRECT, Temperament
from tests.support.rest_double.warehouse import Row, Vended, Warehouse
from tests.support.rest_double.wire import Answer, Listener, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from worker.identifiers import TableIdentifier

ENDPOINTS: Final = (
    "GET /v1/config",
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/tables/rename",
)
RENAME_ENDPOINT: Final = "POST /v1/{prefix}/tables/rename"
_ROUTES: Final[dict[Kind, Callable[[Scene], Answer]]] = {
    Kind.LIST_NAMESPACES: namespaces.listing,
    Kind.CREATE_NAMESPACE: namespaces.create,
    Kind.GET_NAMESPACE: namespaces.get,
    Kind.HEAD_NAMESPACE: namespaces.head,
    Kind.DROP_NAMESPACE: namespaces.drop,
    Kind.NAMESPACE_PROPERTIES: namespaces.properties,
    Kind.LIST: tables.listing,
    Kind.CREATE: tables.create,
    Kind.LOAD: tables.load,
    Kind.HEAD: tables.head,
    Kind.COMMIT: tables.commit,
    Kind.DROP: tables.drop,
    Kind.REGISTER: pointers.register,
    Kind.RENAME: pointers.rename,
    Kind.METRICS: lambda _: NO_CONTENT,
}
_CHANGES: Final = frozenset(
    {Kind.CREATE_NAMESPACE, Kind.DROP_NAMESPACE, Kind.NAMESPACE_PROPERTIES, Kind.CREATE, Kind.COMMIT}
    | {Kind.DROP, Kind.REGISTER, Kind.RENAME, Kind.METRICS}
)
_OPERATIONS: Final = {
    Kind.LOAD: "loadTable",
    Kind.CREATE: "createTable",
    Kind.COMMIT: "updateTable",
    Kind.DROP: "dropTable",
    Kind.REGISTER: "registerTable",
    Kind.RENAME: "renameTable",
    Kind.LIST: "listTable",
    Kind.CREATE_NAMESPACE: "createNamespace",
}


def _nothing(kind: Kind) -> None:
    """What happens between look and change: nothing."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One request, and the status that it was answered with."""

    kind: Kind
    method: str
    target: str
    status: int


@dataclass
class RestDouble:
    """``with RestDouble(TEMPERAMENTS["polaris"]) as double``; then make warehouses.

    Settings may be changed while it runs. ``between`` is called between what a request looks at and what it changes.
    """

    temperament: Temperament = CORRECT
    files: Files = field(default_factory=Files)
    grants: Grants | None = None
    """An authorizer that hides; None: everybody may do everything."""
    owners: frozenset[str] = frozenset()
    """Users to whom ``grants`` do not apply."""
    tokens: frozenset[str] | None = None
    """Tokens that are let in; None: whoever asks."""
    users: frozenset[str] | None = None
    """Users that a Gravitino metalake knows; None: all."""
    maintenance: bool = False
    endpoints: tuple[str, ...] | None = ENDPOINTS
    """What config announces; None: nothing."""
    between: Callable[[Kind], None] = _nothing
    latency: float = 0.0
    """Seconds that every request takes on top."""
    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    """Every request, in the order of the answers."""
    failures: list[Exception] = field(default_factory=list)
    """What went wrong in the double itself: a test that finds something here found a defect of the double."""

    def __post_init__(self) -> None:
        self._warehouses: dict[str, Warehouse] = {}
        self._mutex = threading.Lock()
        self._listener = Listener(self.answer, port=self.port)

    @property
    def uri(self) -> str:
        """The catalog's address."""
        return self._listener.uri

    def start(self) -> None:
        """Begin to answer."""
        self._listener.start()

    def stop(self) -> None:
        """Close every connection."""
        self._listener.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # What a test arranges.

    def make_warehouse(
        self, name: str, root: str, *, soft_delete: bool = False, vended: Vended | None = None, known_as: str = ""
    ) -> Warehouse:
        """A new warehouse whose tables lie under ``root``; ``known_as`` is its id, where a test knows better."""
        warehouse = Warehouse(
            name,
            root.rstrip("/"),
            known_as or str(uuid.uuid4()),
            ignores_case=self.temperament.ignores_case,
            soft_delete=soft_delete,
            vended=vended or Vended(),
        )
        self._warehouses[name] = warehouse
        return warehouse

    def warehouse(self, name: str) -> Warehouse:
        """A warehouse by its name."""
        return self._warehouses[name]

    def share_warehouse(self, name: str, warehouse: Warehouse) -> None:
        """Let another name lead to the same tables, as catalogs do that share a backend."""
        self._warehouses[name] = warehouse

    def rename_warehouse(self, name: str, new_name: str) -> None:
        """Give a warehouse another name; its id stays."""
        warehouse = self._warehouses.pop(name)
        warehouse.name = new_name
        self._warehouses[new_name] = warehouse

    def forget_warehouse(self, name: str) -> None:
        """Delete a warehouse."""
        del self._warehouses[name]

    def run_tasks(self) -> None:
        """What a server does by itself after a while: soft deletions expire, purges delete files."""
        for warehouse in list(self._warehouses.values()):
            self.expire(warehouse)
        self.run_purges()

    def expire(self, warehouse: Warehouse) -> None:
        """Let the time of a warehouse's soft deletions come: the rows go, and purges are due."""
        with warehouse.lock:
            warehouse.purges += [row.location for row in warehouse.deleted if row.purge]
            warehouse.deleted[:] = []

    def run_purges(self) -> None:
        """Delete the files of what was dropped with purge."""
        for warehouse in list(self._warehouses.values()):
            with warehouse.lock:
                due, warehouse.purges[:] = list(warehouse.purges), []
                warehouse.purged += due
            for location in due:
                self.files.remove_all(location)

    def reconcile(self, *, delete_drift: bool) -> None:
        """Mend what the authorizer believes about where tables stand; ``delete_drift`` also takes old beliefs away."""
        for warehouse in self._warehouses.values():
            for row in warehouse.rows():
                row.homes = {row.identifier.namespace} | (set() if delete_drift else row.homes)

    def undrop(self, warehouse: Warehouse, table_uuid: str) -> bool:
        """Take a soft deletion back; whether the name was free for it."""
        with warehouse.lock:
            found = [row for row in warehouse.deleted if row.table_uuid == table_uuid]
            if found and warehouse.live(found[0].identifier) is not None:
                return False
            for row in found:
                warehouse.deleted.remove(row)
                warehouse.add(row)
        return True

    def row(self, warehouse: str, identifier: TableIdentifier) -> Row | None:
        """What a name leads to, without a request."""
        return self._warehouses[warehouse].live(identifier)

    def count(self, kind: Kind, *, status: int | None = None) -> int:
        """How many requests of a kind there were."""
        with self._mutex:
            return sum(seen.kind is kind and status in {None, seen.status} for seen in self.seen)

    # Inside.

    def answer(self, request: Request) -> Answer:
        """The answer to one request."""
        if self.latency:
            time.sleep(self.latency)
        route = route_of(request.method, request.target)
        try:
            answer = self._answer(request, route)
        except (Refused, RefusedInText) as refusal:
            answer = refusal.answer()
        except Exception as failure:  # noqa: BLE001 - a server answers, whatever happens inside
            self.failures.append(failure)
            answer = Refused(500, type(failure).__name__, str(failure)).answer()
        with self._mutex:
            self.seen.append(Seen(route.kind, request.method, request.target, answer.status))
        return answer

    def _answer(self, request: Request, route: Route) -> Answer:
        dialect = self.temperament.dialect
        if route.kind in {Kind.OTHER, Kind.TOKEN}:
            raise dialect.not_served()
        user = self._user(request)
        if self.maintenance and route.kind in _CHANGES:
            assert isinstance(dialect, Lakekeeper)
            raise dialect.maintenance()
        rights = Rights(user, self.grants, everything=self.grants is None or user in self.owners)
        if route.kind is Kind.CONFIG:
            return self._config(request, route, rights)
        asked = request.headers.get("x-iceberg-access-delegation")
        if isinstance(dialect, Gravitino) and asked and asked != "vended-credentials":
            raise dialect.delegation_refused(asked)
        warehouse = self._routed(route, user)
        if isinstance(dialect, Gravitino):
            self._check_gravitino(route, warehouse, user)
        scene = Scene(request, route, self.temperament, warehouse, self.files, user, rights, self.between)
        answer = _ROUTES[route.kind](scene)
        if self.temperament.purges_unless_told is False and route.kind is Kind.DROP:
            # Elsewhere a purge is done when it is answered; only Lakekeeper leaves it to a task.
            self.run_purges()
        return answer

    def _user(self, request: Request) -> str:
        """Who asks; refused where nobody knows."""
        header = request.headers.get("authorization")
        scheme, _, rest = (header or "").partition(" ")
        dialect = self.temperament.dialect
        if isinstance(dialect, Gravitino):
            if scheme.lower() == "bearer":
                raise dialect.unauthenticated(header)
            return base64.b64decode(rest).decode().partition(":")[0] if rest else "anonymous"
        if self.tokens is not None and (scheme.lower() != "bearer" or rest.strip() not in self.tokens):
            raise dialect.unauthenticated(header)
        return rest.strip()

    def _config(self, request: Request, route: Route, rights: Rights) -> Answer:
        temperament, dialect = self.temperament, self.temperament.dialect
        asked = route.asked("warehouse")
        if temperament.prefix == "none":
            overrides = {"namespace-separator": temperament.separator} if temperament.separator != "%1F" else {}
            return self._usage({}, overrides)
        if asked is None:
            raise dialect.no_warehouse_named()
        found = self._named(asked)
        if isinstance(dialect, Lakekeeper) and "/" in asked:
            # Read as a project and a name.
            found, asked = None, asked.rpartition("/")[2]
        if found is None or not found.active:
            raise dialect.warehouse_missing(asked, by_id=False)
        if isinstance(dialect, Gravitino):
            if not found.starts:
                raise dialect.starts_not()
            return self._usage({"prefix": asked}, {})
        if not rights.sees_warehouse():
            raise dialect.warehouse_missing(asked, by_id=False)
        if not isinstance(dialect, Lakekeeper):
            return self._usage({"prefix": asked}, {})
        defaults = {"prefix": found.id, "rest-page-size": "100"}
        if found.soft_delete:
            defaults["s3.delete-enabled"] = "false"
        host, path = request.headers.get("host", "127.0.0.1"), request.target.partition("/v1/")[0]
        return self._usage(defaults, {"uri": f"http://{host}{path}", **dialect.overrides}, dialect.usage)

    def _usage(
        self, defaults: dict[str, str], overrides: dict[str, str], more: Mapping[str, str] | None = None
    ) -> Answer:
        endpoints = {} if self.endpoints is None else {"endpoints": list(self.endpoints)}
        return json_answer({"defaults": defaults, "overrides": overrides, **endpoints, **(more or {})})

    def _named(self, name: str) -> Warehouse | None:
        if self.temperament.ignores_case:
            folded = name.casefold()
            return next((held for key, held in self._warehouses.items() if key.casefold() == folded), None)
        return self._warehouses.get(name)

    def _routed(self, route: Route, user: str) -> Warehouse:
        """The warehouse of a path."""
        dialect, prefix = self.temperament.dialect, route.prefix
        if self.temperament.prefix == "none":
            if prefix:
                raise dialect.malformed(f"Invalid path: {prefix}")
            return next(iter(self._warehouses.values()))
        by_id = self.temperament.prefix == "id"
        found = next((held for held in self._warehouses.values() if held.id == prefix), None) if by_id else None
        if not by_id:
            found = self._warehouses.get(prefix)
        if found is None and isinstance(dialect, Gravitino) and route.kind is Kind.LOAD and self.users is not None:
            raise dialect.authorization_failed(user, _OPERATIONS[route.kind])
        if found is None and isinstance(dialect, Lakekeeper):
            dialect.check_id(prefix)
        if found is None or not found.active:
            raise dialect.warehouse_missing(prefix, by_id=by_id)
        return found

    def _check_gravitino(self, route: Route, warehouse: Warehouse, user: str) -> None:
        dialect = self.temperament.dialect
        assert isinstance(dialect, Gravitino)
        if self.users is not None and user not in self.users:
            raise dialect.unknown_user(user)
        if not warehouse.starts:
            if self.temperament.authorization_failed:
                raise dialect.authorization_failed(user, _OPERATIONS.get(route.kind, str(route.kind)))
            raise dialect.starts_not()
