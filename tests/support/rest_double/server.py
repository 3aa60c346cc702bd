"""The double itself: its warehouses behind a listener on loopback, each request taken to its route."""

from __future__ import annotations

import base64
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.support.rest_double import commits, namespaces, pointers, tables
from tests.support.rest_double.access import Rights
from tests.support.rest_double.config import config
from tests.support.rest_double.gravitino import Gravitino
from tests.support.rest_double.lakekeeper import Lakekeeper
from tests.support.rest_double.premises import Premises
from tests.support.rest_double.refusals import Refused, RefusedInText
from tests.support.rest_double.routes import Kind, Route, route_of
from tests.support.rest_double.scene import NO_CONTENT, Scene, json_answer
from tests.support.rest_double.wire import Answer, Listener, Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from tests.support.rest_double.warehouse import Warehouse


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
    Kind.COMMIT: commits.commit,
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


@dataclass(frozen=True, slots=True)
class Seen:
    """One request, and the status that it was answered with."""

    kind: Kind
    method: str
    target: str
    status: int


@dataclass
class RestDouble(Premises):
    """``with RestDouble(TEMPERAMENTS["polaris"]) as double``; then make warehouses."""

    latency: float = 0.0
    """Seconds that every request takes on top."""
    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    """Every request, in the order of the answers."""
    failures: list[Exception] = field(default_factory=list)
    """What went wrong in the double itself: a test that finds something here found a defect of the double."""

    def __post_init__(self) -> None:
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
            return config(self, request, route, rights)
        asked = request.headers.get("x-iceberg-access-delegation")
        if isinstance(dialect, Gravitino) and asked and asked != "vended-credentials":
            raise dialect.delegation_refused(asked)
        warehouse = self._routed(route, user)
        if isinstance(dialect, Gravitino):
            self._check_gravitino(route, warehouse, user)
        scene = Scene(request, route, self.temperament, warehouse, self.files, user, rights, self.between)
        if self.privileges is not None:
            self.privileges.check(scene)
        answer = self._faded(scene) if warehouse.fading else _ROUTES[route.kind](scene)
        if self.temperament.purges_unless_told is False and route.kind is Kind.DROP:
            # Elsewhere a purge is done when it is answered; only Lakekeeper leaves it to a task.
            self.run_purges()
        return answer

    def _faded(self, scene: Scene) -> Answer:
        dialect = self.temperament.dialect
        match scene.kind:
            case Kind.LOAD | Kind.HEAD:
                raise dialect.table_missing(scene.identifier)
            case Kind.GET_NAMESPACE | Kind.HEAD_NAMESPACE:
                raise dialect.namespace_missing(scene.namespace)
            case Kind.LIST:
                return json_answer({"identifiers": []})
            case _:
                raise dialect.warehouse_missing(scene.warehouse.id, by_id=True)

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

    def _routed(self, route: Route, user: str) -> Warehouse:
        """The warehouse of a path."""
        dialect, prefix = self.temperament.dialect, route.prefix
        if self.temperament.prefix == "none":
            if prefix:
                raise dialect.malformed(f"Invalid path: {prefix}")
            return next(iter(self.warehouses.values()))
        by_id = self.temperament.prefix == "id"
        found = next((held for held in self.warehouses.values() if held.id == prefix), None) if by_id else None
        if not by_id:
            found = self.warehouses.get(prefix)
        if found is None and isinstance(dialect, Gravitino) and route.kind is Kind.LOAD and self.users is not None:
            raise dialect.authorization_failed(user, _OPERATIONS[route.kind])
        if found is None and isinstance(dialect, Lakekeeper):
            dialect.check_id(prefix)
        if found is None or not (found.active or found.fading):
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
