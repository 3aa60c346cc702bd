"""The route of a commit: to a table that is there, or of one that comes to be with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.rest_double import documents
from tests.support.rest_double.lakekeeper import Lakekeeper, said
from tests.support.rest_double.tables import enter_or_fail, need_place, new_metadata_location, shown, written
from tests.support.rest_double.warehouse import Row

if TYPE_CHECKING:
    from tests.support.rest_double.scene import Scene
    from tests.support.rest_double.wire import Answer


def commit(scene: Scene) -> Answer:
    """POST a commit, of a table that is there or that comes to be with it."""
    body, identifier, dialect = scene.body(), scene.identifier, scene.temperament.dialect
    first = any(requirement.get("type") == "assert-create" for requirement in body.get("requirements", ()))
    with scene.warehouse.lock:
        row = scene.warehouse.live(identifier)
        if row is None and not first:
            raise dialect.table_missing(identifier)
        if row is not None:
            scene.rights.check_table(scene, row, "modify")
        before = None if row is None else row.metadata_location
    if isinstance(dialect, Lakekeeper):
        _check_updates(scene, body)
    if row is not None and before is not None:
        return _commit_to(scene, row, before, body)
    return _commit_first(scene, body)


def _commit_to(scene: Scene, row: Row, before: str, body: dict[str, Any]) -> Answer:
    temperament, dialect = scene.temperament, scene.temperament.dialect
    if not temperament.answers_from_database and not scene.files.exists(before):
        raise dialect.file_missing(before)
    was = json.loads(row.document)
    document = _updated(scene, was, before, body)
    location = new_metadata_location(scene, document["location"], before)
    scene.between(scene.kind)
    scene.files.write(location, written(scene, document))
    with scene.warehouse.lock:
        found = (
            scene.warehouse.holds(row) if temperament.renames_by_row else scene.warehouse.live(scene.identifier) is row
        )
        if not found or row.metadata_location != before:
            scene.files.remove(location)
            raise dialect.commit_raced(row.table_uuid) if found else dialect.table_missing(scene.identifier)
        row.metadata_location, row.location, row.document = location, document["location"], written(scene, document)
        answer = shown(scene, row)
    for gone in documents.cleaned_up(was, document):
        scene.files.remove(gone)
    return answer


def _commit_first(scene: Scene, body: dict[str, Any]) -> Answer:
    identifier = scene.identifier
    document = _updated(scene, None, None, body)
    table_uuid, location = document["table-uuid"], document.get("location")
    with scene.warehouse.lock:
        need_place(scene, identifier.namespace)
        staged = scene.warehouse.row(identifier)
        if staged is not None and not staged.staged:
            raise scene.temperament.dialect.commit_refused("Requirement failed: table already exists")
        location = location or (
            staged.location if staged else "/".join((scene.warehouse.root, *identifier.namespace, identifier.name))
        )
        document["location"] = location
        where = new_metadata_location(scene, location, None)
        row = Row(table_uuid, identifier, location, where, written(scene, document), {identifier.namespace})
        scene.files.write(where, row.document)
        if staged is not None:
            scene.warehouse.remove(staged)
        scene.warehouse.add(row)
    enter_or_fail(scene, identifier)
    return shown(scene, row)


def _updated(
    scene: Scene, current: dict[str, Any] | None, location: str | None, body: dict[str, Any]
) -> dict[str, Any]:
    try:
        return documents.updated_document(current, location, body)
    except documents.RequirementError as error:
        raise scene.temperament.dialect.commit_refused(str(error)) from error


def _check_updates(scene: Scene, body: dict[str, Any]) -> None:
    row = scene.warehouse.row(scene.identifier)
    for update in body.get("updates", ()):
        action = update.get("action")
        if action == "set-location" and row is not None and update["location"] != row.location:
            raise said(400, "SetLocationNotAllowed", "Cannot change table location")
        if action == "assign-uuid" and row is not None and row.staged and update["uuid"] != row.table_uuid:
            raise said(400, "AssignUuidNotAllowed", "Cannot assign a new UUID")
