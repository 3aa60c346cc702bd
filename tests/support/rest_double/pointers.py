"""The routes that put a table that is there under a name: register and rename."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

from tests.support.rest_double.gravitino import LONGEST, Gravitino
from tests.support.rest_double.lakekeeper import name_refused
from tests.support.rest_double.privileges import named
from tests.support.rest_double.scene import NO_CONTENT, Scene
from tests.support.rest_double.tables import (
    check_location,
    check_within,
    enter_or_fail,
    need_place,
    refuse_dot,
    shown,
    written,
)
from tests.support.rest_double.warehouse import Row
from worker.identifiers import TableIdentifier

if TYPE_CHECKING:
    from tests.support.rest_double.wire import Answer

_LOST_RACES: Final = itertools.count()


def register(scene: Scene) -> Answer:
    """POST a metadata file to a namespace, under a name."""
    body, temperament, namespace = scene.body(), scene.temperament, scene.namespace
    identifier = TableIdentifier(namespace, body["name"])
    if body.get("overwrite") and temperament.overwrites == "refused":
        raise temperament.dialect.overwrite_refused()
    if temperament.checks_names and (refusal := name_refused(identifier.name)) is not None:
        raise refusal
    scene.rights.check_warehouse(scene, "describe")
    metadata_location = body["metadata-location"]
    if temperament.reads_file_first:
        document = _read(scene, identifier, metadata_location)
        row = _row(scene, identifier, metadata_location, document)
    else:
        with scene.warehouse.lock:
            need_place(scene, namespace)
            if scene.warehouse.live(identifier) is not None and not _replaces(scene, body):
                raise temperament.dialect.table_taken(identifier)
        row = _row(scene, identifier, metadata_location, _read(scene, identifier, metadata_location))
    with scene.warehouse.lock:
        need_place(scene, namespace)
        _put(scene, row, replaces=_replaces(scene, body))
    enter_or_fail(scene, identifier)
    return shown(scene, row)


def _replaces(scene: Scene, body: dict[str, Any]) -> bool:
    return bool(body.get("overwrite")) and scene.temperament.overwrites == "obeyed"


def _read(scene: Scene, identifier: TableIdentifier, metadata_location: str) -> dict[str, Any]:
    check_within(scene, identifier.namespace, metadata_location)
    try:
        document = json.loads(scene.files.read(metadata_location))
    except FileNotFoundError as error:
        raise scene.temperament.dialect.file_missing(metadata_location) from error
    except ValueError as error:
        raise scene.temperament.dialect.file_unreadable(metadata_location) from error
    check_within(scene, identifier.namespace, document["location"])
    return dict(document)


def _row(scene: Scene, identifier: TableIdentifier, metadata_location: str, document: dict[str, Any]) -> Row:
    location = document["location"]
    return Row(
        document["table-uuid"],
        identifier,
        location,
        metadata_location,
        written(scene, document),
        {identifier.namespace},
        owner=scene.user,
    )


def _put(scene: Scene, row: Row, *, replaces: bool) -> None:
    dialect, warehouse = scene.temperament.dialect, scene.warehouse
    before = warehouse.row(row.identifier)
    if replaces and before is not None and before.protected:
        raise dialect.protected(before.table_uuid)
    check_location(scene, row.identifier.namespace, row.location, row.table_uuid, before if replaces else None)
    if before is not None and not before.staged and not replaces:
        raise dialect.table_taken(row.identifier)
    if scene.temperament.one_name_per_uuid and warehouse.knows(row.table_uuid, but=before):
        raise dialect.table_taken(row.identifier)
    if before is not None:
        warehouse.remove(before)
    warehouse.add(row)


def rename(scene: Scene) -> Answer:
    """POST another name for a table."""
    body = scene.body()
    if "destination" not in body or "source" not in body:
        missing = "destination" if "source" in body else "source"
        raise scene.temperament.dialect.malformed(
            f"missing field `{missing}` at line 1 column {len(scene.request.body)}"
        )
    source, target = named(body)
    if scene.temperament.checks_names and not target.name:
        refusal = name_refused(target.name)
        assert refusal is not None
        raise refusal
    refuse_dot(scene, source)
    if scene.temperament.renames_by_row:
        return _rename_row(scene, source, target)
    with scene.warehouse.lock:
        row = scene.need_live(source)
        scene.need_namespace(target.namespace)
        if not scene.warehouse.same(source, target) and scene.warehouse.live(target) is not None:
            here = source.namespace == target.namespace
            raise scene.temperament.dialect.rename_taken(target, here=here)
        if scene.temperament.caches_metadata and not scene.files.exists(row.metadata_location):
            raise scene.temperament.dialect.file_missing(row.metadata_location)
        scene.warehouse.move(row, target)
    if scene.temperament.restricts_names and len(target.name) > LONGEST:
        assert isinstance(scene.temperament.dialect, Gravitino)
        raise scene.temperament.dialect.entity_not_renamed()
    return NO_CONTENT


def _rename_row(scene: Scene, source: TableIdentifier, target: TableIdentifier) -> Answer:
    """In two steps, as Lakekeeper does: what was looked up is changed, whatever has become of it in between.

    Only the name is compared again, not the namespace: so one rename that is sent several times at once, and keeps the
    table's name, succeeds several times.
    """
    warehouse, dialect = scene.warehouse, scene.temperament.dialect
    with warehouse.lock:
        row = scene.need_live(source)
        scene.rights.check_namespace(scene, target.namespace, "describe")
        scene.need_namespace(target.namespace)
        scene.rights.check_namespace(scene, target.namespace, "create")
        scene.rights.check_table(scene, row, "modify")
        was_taken = _is_taken(scene, row, target)
    scene.between(scene.kind)
    with warehouse.lock:
        if not warehouse.holds(row):
            raise dialect.table_missing(source)
        if source.namespace != target.namespace and not warehouse.same_name(row.identifier.name, source.name):
            raise dialect.rename_lost(source)
        if _is_taken(scene, row, target):
            # Which of the two it is, is a matter of microseconds: here, in turn.
            lost_a_race = not was_taken and next(_LOST_RACES) % 2
            here = source.namespace == target.namespace
            raise dialect.rename_raced(target) if lost_a_race else dialect.rename_taken(target, here=here)
        warehouse.move(row, target)
    return NO_CONTENT


def _is_taken(scene: Scene, row: Row, target: TableIdentifier) -> bool:
    holder = scene.warehouse.row(target)
    if holder is not None and holder is not row:
        return True
    blocked = scene.warehouse.deleted if scene.temperament.deleted_blocks_rename else []
    return any(scene.warehouse.same(gone.identifier, target) for gone in blocked)
