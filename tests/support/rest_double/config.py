"""What a catalog says about how it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.rest_double.gravitino import Gravitino
from tests.support.rest_double.lakekeeper import Lakekeeper
from tests.support.rest_double.scene import json_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.rest_double.access import Rights
    from tests.support.rest_double.premises import Premises
    from tests.support.rest_double.routes import Route
    from tests.support.rest_double.warehouse import Warehouse
    from tests.support.rest_double.wire import Answer, Request


def config(premises: Premises, request: Request, route: Route, rights: Rights) -> Answer:
    """GET config."""
    temperament, dialect = premises.temperament, premises.temperament.dialect
    asked = route.asked("warehouse")
    if temperament.prefix == "none":
        overrides = {"namespace-separator": temperament.separator} if temperament.separator != "%1F" else {}
        return _usage(premises, {}, overrides)
    if asked is None:
        raise dialect.no_warehouse_named()
    found = _named(premises, asked)
    if isinstance(dialect, Lakekeeper) and "/" in asked:
        # Read as a project and a name.
        found, asked = None, asked.rpartition("/")[2]
    if found is None or not (found.active or found.fading):
        raise dialect.warehouse_missing(asked, by_id=False)
    if isinstance(dialect, Gravitino):
        if not found.starts:
            raise dialect.starts_not()
        return _usage(premises, {"prefix": asked}, {})
    if not rights.sees_warehouse():
        raise dialect.warehouse_missing(asked, by_id=False)
    if not isinstance(dialect, Lakekeeper):
        return _usage(premises, {"prefix": asked}, {})
    defaults = {"prefix": found.id, "rest-page-size": "100"}
    if found.soft_delete:
        defaults["s3.delete-enabled"] = "false"
    host, path = request.headers.get("host", "127.0.0.1"), request.target.partition("/v1/")[0]
    return _usage(premises, defaults, {"uri": f"http://{host}{path}", **dialect.overrides}, dialect.usage)


def _usage(
    premises: Premises, defaults: dict[str, str], overrides: dict[str, str], more: Mapping[str, str] | None = None
) -> Answer:
    endpoints = {} if premises.endpoints is None else {"endpoints": list(premises.endpoints)}
    return json_answer({"defaults": defaults, "overrides": overrides, **endpoints, **(more or {})})


def _named(premises: Premises, name: str) -> Warehouse | None:
    if premises.temperament.ignores_case:
        folded = name.casefold()
        return next((held for key, held in premises.warehouses.items() if key.casefold() == folded), None)
    return premises.warehouses.get(name)
