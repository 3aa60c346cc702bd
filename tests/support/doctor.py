"""An installation for ``reroot doctor`` to inspect, and what it found there."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.rest import RestCatalog

from tests.support.operator import Operator
from tests.support.rest_double import TEMPERAMENTS, RestDouble
from tests.support.tables import make_table
from worker.controlplane.connection import connect
from worker.controlplane.workers import note_alive
from worker.identifiers import LEGACY_NAMESPACE, TableIdentifier
from worker.messages import Queue

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.operator import Ended

WAREHOUSE = "w_1"
TOKEN = "let-me-in"
TABLE = TableIdentifier((LEGACY_NAMESPACE,), "ds_1")
USED = {"REROOT_CATALOG_AUTH": "token", "REROOT_CATALOG_TOKEN": TOKEN, "REROOT_WAREHOUSE": WAREHOUSE}


@dataclass
class Found:
    """What ``reroot doctor --json`` said."""

    ended: Ended
    checks: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.document: Any = json.loads(self.ended.out)
        self.checks = self.document["checks"]

    def at(self, level: str) -> set[str]:
        """The checks of a level."""
        return {f"{check['system'].split()[0]} {check['name']}" for check in self.checks if check["level"] == level}

    def one(self, system: str, name: str) -> dict[str, Any]:
        """One check, which is there once."""
        mine = [each for each in self.checks if system in {each["system"], each["system"].split()[0]}]
        [check] = [each for each in mine if each["name"] == name]
        return check


def examined(operator: Operator, *arguments: str) -> Found:
    return Found(operator.types("doctor", "--json", *arguments))


class Installation:
    """A control plane, a broker, a worker that was seen, and a catalog that asks who comes."""

    def __init__(self, database: str, broker: str, folder: Path, leaving: ExitStack) -> None:
        self.database = database
        self.broker = broker
        self.folder = folder
        self._leaving = leaving
        with closing(connect(database, role="test")) as connection:
            note_alive(connection, "worker-1", [Queue.MOVES], 4)
        self.double = self.catalog("correct")

    def catalog(self, temperament: str) -> RestDouble:
        """A catalog with one table in the legacy namespace."""
        double = RestDouble() if temperament == "correct" else RestDouble(TEMPERAMENTS[temperament])
        double.make_warehouse(WAREHOUSE, f"file://{self.folder}/{temperament}")
        self._leaving.enter_context(double)
        writer = RestCatalog("writer", uri=double.uri, warehouse=WAREHOUSE, auth={"type": "noop"})  # type: ignore[arg-type]
        make_table(writer, TABLE)
        writer.close()
        double.tokens = frozenset({TOKEN})
        return double

    def operator(self, **settings: str) -> Operator:
        given = {"REROOT_CATALOG_URI": self.double.uri, **USED, **settings}
        return Operator(self.database, self.broker, **{name: value for name, value in given.items() if value})
