"""Asks the double what a real server was asked, step by step, and compares the answers.

A recording's line is a request with the real server's answer; or an ``effect``, what was done to the server otherwise
(by its management API, by a writer, by time); or what is ``expect``ed of storage; or a request that is ``left_out``,
with the key of the reason. Identifiers that a server makes up are bound as they turn up: the recorded one stands for
the double's from then on.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tests.support.rest_double.access import Grants
from tests.support.rest_double.comparison import content_of, difference_in
from tests.support.rest_double.files import Files
from tests.support.rest_double.server import RestDouble
from tests.support.rest_double.warehouse import Vended
from tests.support.rest_double.wire import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.rest_double.temperament import Temperament
    from tests.support.rest_double.warehouse import Row, Warehouse

Line = dict[str, Any]
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ASKED_BY: Final = re.compile(r"\[([\w ]+)\]$")
_SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "s", "required": False, "type": "string"},
    ],
}
_SNAPSHOT: Final = {
    "snapshot-id": 4322087700479659992,
    "sequence-number": 1,
    "timestamp-ms": 1795983422366,
    "manifest-list": "s3://lake/snap.avro",
    "summary": {
        "operation": "append",
        "added-files-size": "914",
        "added-data-files": "1",
        "added-records": "3",
        "total-data-files": "1",
        "total-delete-files": "0",
        "total-records": "3",
        "total-files-size": "914",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    },
    "schema-id": 0,
}
_APPEND: Final = {
    "requirements": [],
    "updates": [
        {"action": "add-snapshot", "snapshot": _SNAPSHOT},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": _SNAPSHOT["snapshot-id"]},
    ],
}


@dataclass
class Replay:
    """One recording on one double."""

    temperament: Temperament
    folder: Path
    same: int = 0
    """Requests that were answered alike."""
    different: dict[int, str] = field(default_factory=dict)
    """What was different, by the number of the line."""
    left_out: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        mounts = {prefix: self.folder / prefix.partition(":")[0] for prefix in ("s3://lake", "file:///warehouse")}
        self.double = RestDouble(self.temperament, files=Files(mounts))
        self._bound: dict[str, str] = {}
        self._warehouses: dict[str, Warehouse] = {}
        self._effects: dict[str, Callable[[Line], None]] = {
            "warehouse": self._make_warehouse,
            "server": self._set_up,
            "table": self._make_table,
            "file": self._put_file,
            "deactivate": lambda line: setattr(self._warehouses[line["id"]], "active", False),
            "activate": lambda line: setattr(self._warehouses[line["id"]], "active", True),
            "in_use": lambda line: setattr(self._warehouses[line["id"]], "in_use", line["in_use"]),
            "rename_warehouse": lambda line: self.double.rename_warehouse(self._name(line), line["name"]),
            "delete_warehouse": lambda line: self.double.forget_warehouse(line.get("name") or self._name(line)),
            "protect": lambda line: setattr(self._row(line), "protected", line["protected"]),
            "undrop": self._undrop,
            "purge": lambda _: self.double.run_purges(),
            "expire": lambda line: self.double.expire(self._warehouses[line["id"]]),
            "cancel_purges": lambda line: self._warehouses[line["id"]].purges.clear(),
            "grant": self._grant,
            "reconcile": lambda line: self.double.reconcile(delete_drift=line["delete_drift"]),
        }

    def run(self, lines: list[Line]) -> None:
        """Take every step of a recording."""
        for number, line in enumerate(lines, 1):
            if "left_out" in line:
                self.left_out[line["left_out"]] += 1
            elif "effect" in line:
                self._effects[line["effect"]](line)
            else:
                difference = self._looked(line) if "expect" in line else self._asked(line)
                if difference:
                    self.different[number] = difference
                else:
                    self.same += 1

    # One request.

    def _asked(self, line: Line) -> str:
        answer = self.double.answer(self._request(line))
        told = content_of(answer)
        self._bind(line.get("answer"), told)
        return difference_in(line, answer, told)

    def _request(self, line: Line) -> Request:
        headers = {name.lower(): value for name, value in (line.get("headers") or {}).items() if value is not None}
        if "authorization" not in headers and (who := _authorization(line)):
            headers["authorization"] = who
        body = line.get("body")
        sent = b"" if body is None else self._rebound(json.dumps(body)).encode()
        return Request(line["method"], self._rebound(line["path"]), {"host": "catalog.test", **headers}, sent)

    def _rebound(self, text: str) -> str:
        return _UUID.sub(lambda found: self._bound.get(found.group(), found.group()), text)

    def _bind(self, recorded: object, told: object) -> None:
        """Let every identifier that the recorded answer made up stand for the one that the double made up."""
        if isinstance(recorded, dict) and isinstance(told, dict):
            for name in recorded.keys() & told.keys():
                self._bind(recorded[name], told[name])
        elif isinstance(recorded, list) and isinstance(told, list):
            for one, other in zip(recorded, told, strict=False):
                self._bind(one, other)
        elif isinstance(recorded, str) and isinstance(told, str):
            ours, theirs = _UUID.findall(told), _UUID.findall(recorded)
            if len(ours) == len(theirs):
                self._bound.update(zip(theirs, ours, strict=True))

    def _looked(self, line: Line) -> str:
        there = self.double.files.any_under(self._rebound(line["location"]))
        found = "files" if there else "no_files"
        return "" if found == line["expect"] else f"storage: {line['expect']} there, {found} here"

    # What was done to the server otherwise.

    def _make_warehouse(self, line: Line) -> None:
        if line["id"] in self._warehouses and line.get("shared"):
            self.double.share_warehouse(line["name"], self._warehouses[line["id"]])
            return
        vended = Vended(dict.fromkeys(line.get("config", ()), "***"), dict.fromkeys(line.get("credential", ()), "***"))
        self._warehouses[line["id"]] = self.double.make_warehouse(
            line["name"], line["root"], soft_delete=line.get("soft_delete", False), vended=vended, known_as=line["id"]
        )
        self._warehouses[line["id"]].starts = line.get("starts", True)

    def _set_up(self, line: Line) -> None:
        self.double.grants = Grants() if line.get("grants") else None
        self.double.owners = frozenset(line.get("owners", ()))
        for name in ("tokens", "users"):
            setattr(self.double, name, frozenset(line[name]) if name in line else None)
        self.double.maintenance = line.get("maintenance", False)

    def _make_table(self, line: Line) -> None:
        """What a writer did: a table, and an append."""
        warehouse = next(
            held for held in self._warehouses.values() if line["location"].startswith(held.root + "/") and held.active
        )
        *namespace, name = line["table"].split(".")
        where = f"/catalog/v1/{warehouse.id}/namespaces/{quote('.'.join(namespace))}/tables"
        self._must("POST", where, {"name": name, "schema": _SCHEMA})
        told = self._must("POST", f"{where}/{name}", _APPEND)
        metadata = told["metadata"]
        self._bind(
            [line["uuid"], line["location"], line["metadata_location"]],
            [metadata["table-uuid"], metadata["location"], told["metadata-location"]],
        )

    def _must(self, method: str, target: str, body: object) -> Line:
        answer = self.double.answer(Request(method, target, {}, json.dumps(body).encode()))
        assert answer.status == 200, answer.body
        told: Line = json.loads(answer.body)
        return told

    def _put_file(self, line: Line) -> None:
        location = self._rebound(line["location"])
        if "text" in line:
            self.double.files.write(location, line["text"].encode())
        else:
            self.double.files.write_json(location, json.loads(self._rebound(json.dumps(line["document"]))))

    def _undrop(self, line: Line) -> None:
        self.double.undrop(self._warehouses[line["id"]], self._rebound(line["uuid"]))

    def _grant(self, line: Line) -> None:
        grants = self.double.grants
        assert grants is not None
        if "uuid" in line:
            grants.grant_on_table(line["user"], line["relation"], self._rebound(line["uuid"]))
        else:
            grants.grant(line["user"], line["relation"], tuple(line["namespace"]))

    def _name(self, line: Line) -> str:
        return self._warehouses[line["id"]].name

    def _row(self, line: Line) -> Row:
        uuid = self._rebound(line["uuid"])
        return next(row for row in self._warehouses[line["id"]].rows() if row.table_uuid == uuid)


def _authorization(line: Line) -> str:
    """Who asked, as the recording tells it."""
    if line.get("user") and line["user"] != "None":
        return "Basic " + base64.b64encode(f"{line['user']}:x".encode()).decode()
    named = _ASKED_BY.search(line["step"])
    if named is None or named.group(1) == "no token":
        return ""
    return "Bearer " + {"machine": "svc-1"}.get(named.group(1), named.group(1))
