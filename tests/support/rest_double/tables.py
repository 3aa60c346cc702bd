"""The routes of one table, and of the tables of a namespace."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tests.support.rest_double import documents
from tests.support.rest_double.gravitino import METADATA_TABLES, Gravitino
from tests.support.rest_double.lakekeeper import Lakekeeper, name_refused, said
from tests.support.rest_double.namespaces import new_properties, next_token, page
from tests.support.rest_double.refusals import RefusedInText
from tests.support.rest_double.routes import Kind
from tests.support.rest_double.scene import NO_CONTENT, Scene, json_answer
from tests.support.rest_double.warehouse import Row
from tests.support.rest_double.wire import Answer
from worker.identifiers import TableIdentifier
from worker.lakehouse.locations import normalise

if TYPE_CHECKING:
    from tests.support.rest_double.warehouse import Levels

_YES: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_NO: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def load(scene: Scene) -> Answer:
    """GET a table."""
    hidden = scene.identifier.name in METADATA_TABLES and len(scene.namespace) > 1
    if scene.temperament.restricts_names and hidden:
        raise scene.temperament.dialect.table_missing(scene.identifier)
    return shown(scene, _readable(scene))


def head(scene: Scene) -> Answer:
    """HEAD of a table."""
    _readable(scene)
    return NO_CONTENT


def _readable(scene: Scene) -> Row:
    identifier, temperament = scene.identifier, scene.temperament
    refuse_dot(scene, identifier)
    with scene.warehouse.lock:
        row = scene.warehouse.live(identifier)
        if row is None:
            raise temperament.dialect.table_missing(identifier)
        scene.rights.check_table(scene, row, "describe")
        _enter(scene, identifier.namespace)
    kept = temperament.answers_from_database or (temperament.caches_metadata and scene.kind is Kind.LOAD)
    if not kept and not scene.files.exists(row.metadata_location):
        raise temperament.dialect.file_missing(row.metadata_location)
    return row


def shown(scene: Scene, row: Row, *, staged: bool = False) -> Answer:
    """A table as an answer shows it. Its metadata goes out as it was written, which is what makes a load cheap."""
    temperament, vended = scene.temperament, scene.warehouse.vended
    readable = scene.rights.may_read_files(row)
    where = None if row.staged else row.metadata_location
    parts = [] if staged else [b'"metadata-location":' + json.dumps(where).encode()]
    parts.append(b'"metadata":' + row.document)
    if scene.kind in temperament.configures and readable:
        config = None if scene.kind is Kind.COMMIT else dict(vended.config)
        parts.append(b'"config":' + json.dumps(config).encode())
    if scene.kind in temperament.vends and readable:
        credential = {"prefix": row.location, "config": dict(vended.credential)}
        parts.append(b'"storage-credentials":' + json.dumps([credential]).encode())
    return Answer(200, b"{" + b",".join(parts) + b"}")


def listing(scene: Scene) -> Answer:
    """GET the tables of a namespace."""
    namespace = scene.namespace
    scene.rights.check_namespace(scene, namespace, "describe")
    with scene.warehouse.lock:
        scene.need_namespace(namespace)
        rows = scene.warehouse.rows_in(namespace)
    if scene.temperament.leaves_out_dots:
        rows = [row for row in rows if "." not in row.identifier.name]
    told = namespace[:1] if scene.temperament.flattens_listings else None
    entries = [{"namespace": told or row.identifier.namespace, "name": row.identifier.name} for row in rows]
    chosen, token = page(scene, entries)
    uuids = {"table-uuids": [row.table_uuid for row in rows]} if scene.route.asked("returnUuids") == "true" else {}
    return json_answer({"identifiers": chosen, **next_token(scene, token), **uuids})


def create(scene: Scene) -> Answer:
    """POST a new table."""
    body, temperament, warehouse = scene.body(), scene.temperament, scene.warehouse
    identifier = TableIdentifier(scene.namespace, body["name"])
    if temperament.checks_names and (refusal := name_refused(identifier.name)) is not None:
        raise refusal
    with warehouse.lock:
        need_place(scene, identifier.namespace)
        table_uuid = uuid.uuid4()
        location = _location(scene, identifier, body.get("location"), table_uuid)
        check_location(scene, identifier.namespace, location, str(table_uuid))
        before = warehouse.row(identifier)
        if before is not None and not before.staged:
            raise temperament.dialect.table_taken(identifier)
        row = _new_row(scene, identifier, body, location, table_uuid)
        row.staged = bool(body.get("stage-create"))
        if row.staged and not temperament.stage_creates:
            assert isinstance(temperament.dialect, Gravitino)
            raise temperament.dialect.not_entered(identifier.name)
        if row.staged and not isinstance(temperament.dialect, Lakekeeper):
            return shown(scene, row, staged=True)
        if before is not None:
            warehouse.remove(before)
        warehouse.add(row)
        if row.staged:
            return shown(scene, row)
    scene.files.write(row.metadata_location, row.document)
    enter_or_fail(scene, identifier)
    return shown(scene, row)


def _new_row(
    scene: Scene, identifier: TableIdentifier, body: dict[str, Any], location: str, table_uuid: uuid.UUID
) -> Row:
    properties = dict(body.get("properties") or {})
    if isinstance(scene.temperament.dialect, Gravitino):
        properties = {"owner": scene.user, "write.parquet.compression-codec": "zstd", **properties}
        if body.get("stage-create"):
            properties["created-at"] = datetime.now(UTC).isoformat()
    document = documents.new_document(body, location, properties, table_uuid)
    return Row(
        str(table_uuid),
        identifier,
        location,
        new_metadata_location(scene, location, None),
        written(scene, document),
        {identifier.namespace},
        owner=scene.user,
    )


def drop(scene: Scene) -> Answer:
    """DELETE a table."""
    identifier, temperament, warehouse = scene.identifier, scene.temperament, scene.warehouse
    purge = _purge_asked(scene)
    if purge and temperament.purge_forbidden:
        raise temperament.dialect.purge_refused()
    refuse_dot(scene, identifier)
    forced = scene.route.asked("force") == "true" and isinstance(temperament.dialect, Lakekeeper)
    with warehouse.lock:
        row = scene.need_live(identifier)
        scene.rights.check_table(scene, row, "modify")
        if row.protected and not forced:
            raise temperament.dialect.protected(row.table_uuid)
    scene.between(scene.kind)
    with warehouse.lock:
        # A row that another request renamed meanwhile is dropped all the same, where rows are what is dropped.
        if not (warehouse.holds(row) if temperament.renames_by_row else warehouse.live(identifier) is row):
            raise temperament.dialect.table_missing(identifier)
        warehouse.remove(row)
        scene.rights.forget(row)
        if warehouse.soft_delete and not forced:
            row.purge = purge
            warehouse.deleted.append(row)
        elif purge:
            warehouse.purges.append(row.location)
    return NO_CONTENT


def _purge_asked(scene: Scene) -> bool:
    asked = scene.route.asked("purgeRequested")
    if asked is None:
        return scene.temperament.purges_unless_told
    if isinstance(scene.temperament.dialect, Lakekeeper) and asked not in _YES | _NO:
        text = f"Failed to deserialize query string: purgeRequested: Failed to parse value '{asked}' to 'bool'. "
        raise RefusedInText(400, text)
    return asked in _YES


# What the routes that put a table under a name share.


def refuse_dot(scene: Scene, identifier: TableIdentifier) -> None:
    """Gravitino with authorization takes a name with a dot for one with more levels."""
    if scene.temperament.restricts_names and "." in identifier.name:
        assert isinstance(scene.temperament.dialect, Gravitino)
        raise scene.temperament.dialect.authorization_failed(scene.user, str(scene.kind))


def need_place(scene: Scene, namespace: Levels) -> None:
    """Refuse where the namespace is not there, or make it where this server does."""
    scene.rights.check_namespace(scene, namespace, "create")
    if scene.temperament.makes_namespaces and not scene.warehouse.has_namespace(namespace):
        scene.warehouse.add_namespace(namespace, new_properties(scene, namespace, {}))
    scene.need_namespace(namespace)


def check_location(
    scene: Scene, namespace: Levels, location: str, table_uuid: str, replaced: Row | None = None
) -> None:
    """Refuse a table's location where it may not lie."""
    check_within(scene, namespace, location)
    exclusive = scene.temperament.exclusive_locations
    if exclusive and scene.warehouse.lies_at(location, but_uuid=table_uuid, but=replaced):
        raise scene.temperament.dialect.location_taken(location.rstrip("/"))
    if scene.kind is Kind.CREATE and exclusive and scene.files.any_under(location):
        why = "Unexpected files in location, tabular locations have to be empty"
        message = f"Invalid location `{location}`. Context: []. Source: {why}"
        raise said(400, "InvalidLocation", message)


def check_within(scene: Scene, namespace: Levels, location: str) -> None:
    """Refuse a location that lies elsewhere than this server's tables."""
    within = {
        "anywhere": None,
        "warehouse": scene.warehouse.root,
        "namespace": "/".join((scene.warehouse.root, *namespace)),
    }[scene.temperament.locations_within]
    if within is not None and not normalise(location).startswith(normalise(within).rstrip("/") + "/"):
        raise scene.temperament.dialect.location_outside(location, within)


def enter_or_fail(scene: Scene, identifier: TableIdentifier) -> None:
    """Gravitino 1.2 with authorization: what was done below one level is not found again, but for a twin above."""
    _enter(scene, identifier.namespace)
    scene.mind_disabled()
    twin = TableIdentifier(identifier.namespace[:1], identifier.name)
    if scene.temperament.fails_after_success and len(identifier.namespace) > 1 and scene.warehouse.live(twin) is None:
        assert isinstance(scene.temperament.dialect, Gravitino)
        raise scene.temperament.dialect.not_entered(identifier.name)


def _enter(scene: Scene, namespace: Levels) -> None:
    scene.warehouse.entered.add(namespace[0])


def written(scene: Scene, document: dict[str, Any]) -> bytes:
    """Metadata as it stands in its file."""
    return json.dumps(scene.temperament.dialect.written(document), separators=(",", ":")).encode()


def new_metadata_location(scene: Scene, location: str, before: str | None) -> str:
    """Where the next metadata file lies."""
    packed = ".gz" if isinstance(scene.temperament.dialect, Lakekeeper) else ""
    number = documents.next_version(before)
    folder = location.replace("file:///", "file:/") if scene.temperament.hadoop_paths else location
    return f"{folder.rstrip('/')}/metadata/{number:05}-{uuid.uuid4()}{packed}.metadata.json"


def _location(scene: Scene, identifier: TableIdentifier, asked: str | None, table_uuid: uuid.UUID) -> str:
    if asked:
        return asked.rstrip("/")
    if scene.temperament.folders_by_uuid:
        return f"{scene.warehouse.root}/{table_uuid}"
    return "/".join((scene.warehouse.root, *identifier.namespace, identifier.name))
