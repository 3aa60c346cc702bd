"""The routes of namespaces."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final, TypeVar

from tests.support.rest_double.gravitino import Gravitino
from tests.support.rest_double.lakekeeper import Lakekeeper, namespace_refused, said
from tests.support.rest_double.routes import levels_of
from tests.support.rest_double.scene import NO_CONTENT, Scene, json_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.rest_double.warehouse import Levels
    from tests.support.rest_double.wire import Answer

Entry = TypeVar("Entry")
_PROTECTED: Final = "Namespace with name '{}' has protected child tables or views and force flag was not specified."


def create(scene: Scene) -> Answer:
    """POST namespaces."""
    body = scene.body()
    namespace: Levels = tuple(body["namespace"])
    if scene.temperament.checks_names and (refusal := namespace_refused(namespace)) is not None:
        raise refusal
    scene.rights.check_warehouse(scene, "create")
    with scene.warehouse.lock:
        if scene.temperament.parents_needed and namespace[:-1]:
            scene.need_namespace(namespace[:-1])
        if scene.warehouse.has_namespace(namespace):
            raise scene.temperament.dialect.namespace_taken(namespace)
        properties = new_properties(scene, namespace, body.get("properties") or {})
        scene.warehouse.add_namespace(namespace, properties)
    scene.mind_disabled()
    return json_answer({"namespace": namespace, "properties": properties})


def new_properties(scene: Scene, namespace: Levels, asked: dict[str, str]) -> dict[str, str]:
    """The properties that a namespace gets."""
    root = scene.warehouse.root
    if scene.temperament.checks_names:
        _check_location(scene, asked.get("location"))
        return {"location": root, "namespace_id": str(uuid.uuid4()), **asked}
    owner = {"owner": scene.user} if isinstance(scene.temperament.dialect, Gravitino) else {}
    return {**owner, "location": "/".join((root, *namespace)), **asked}


def get(scene: Scene) -> Answer:
    """GET one namespace, in the case in which it was asked for."""
    namespace = scene.namespace
    _check_levels(scene, namespace)
    scene.rights.check_namespace(scene, namespace, "describe")
    with scene.warehouse.lock:
        scene.need_namespace(namespace)
        return json_answer({"namespace": namespace, "properties": scene.warehouse.properties_of(namespace)})


def head(scene: Scene) -> Answer:
    """HEAD of one namespace."""
    get(scene)
    return NO_CONTENT


def listing(scene: Scene) -> Answer:
    """GET namespaces, one level."""
    asked = scene.route.asked("parent")
    parent = levels_of(asked, "\x1f") if asked else ()
    scene.rights.check_warehouse(scene, "describe")
    with scene.warehouse.lock:
        if parent:
            scene.need_namespace(parent)
        found = [child for child in scene.warehouse.children_of(parent) if scene.rights.sees(child)]
    shown = [namespace[:1] for namespace in found] if scene.temperament.flattens_listings else found
    chosen, token = page(scene, shown)
    return json_answer({"namespaces": chosen, **next_token(scene, token)})


def page(scene: Scene, entries: Sequence[Entry]) -> tuple[Sequence[Entry], str | None]:
    """One page, and the token of the next; everything where no page is asked for."""
    token, size = scene.route.asked("pageToken"), scene.route.asked("pageSize")
    if token is None or size is None:
        return entries, None
    first = int(token or 0)
    last = first + int(size)
    more = last <= len(entries) if scene.temperament.full_page_has_next else last < len(entries)
    return entries[first:last], str(last) if more else None


def next_token(scene: Scene, token: str | None) -> dict[str, str | None]:
    """The token as this server puts it; some name it even where there is none."""
    if token is None and not isinstance(scene.temperament.dialect, Gravitino):
        return {}
    return {"next-page-token": token}


def drop(scene: Scene) -> Answer:
    """DELETE a namespace; Lakekeeper also with everything in it."""
    namespace, temperament = scene.namespace, scene.temperament
    scene.rights.check_namespace(scene, namespace, "modify")
    with scene.warehouse.lock:
        scene.need_namespace(namespace)
        recursive = scene.route.asked("recursive") == "true" and isinstance(temperament.dialect, Lakekeeper)
        if recursive:
            _empty(scene, namespace)
        tables, children = len(scene.warehouse.rows_in(namespace)), len(scene.warehouse.below(namespace))
        deleted = sum(row.identifier.namespace == namespace for row in scene.warehouse.deleted)
        if tables or children or deleted:
            raise temperament.dialect.namespace_not_empty(namespace, tables, deleted, children)
        scene.warehouse.remove_namespace(namespace)
        if temperament.fails_on_nested_drop and len(namespace) > 1 and namespace[0] in scene.warehouse.entered:
            assert isinstance(temperament.dialect, Gravitino)
            raise temperament.dialect.has_entities(scene.warehouse.name, namespace[0])
    return NO_CONTENT


def _empty(scene: Scene, namespace: Levels) -> None:
    forced = scene.route.asked("force") == "true"
    if scene.warehouse.soft_delete and not forced:
        raise said(
            400,
            "NamespaceDeleteNotAllowed",
            "Cannot recursively delete namespace with soft-deletion without force flag",
        )
    for child in scene.warehouse.children_of(namespace):
        _empty(scene, child)
        scene.warehouse.remove_namespace(child)
    for row in scene.warehouse.rows_in(namespace):
        if row.protected and not forced:
            raise said(
                409,
                "ChildTabularProtected",
                _PROTECTED.format(".".join(namespace)),
                "Error dropping Namespace in catalog",
            )
        scene.warehouse.remove(row)
        if scene.route.asked("purge") == "true":
            scene.warehouse.purges.append(row.location)
    scene.warehouse.deleted[:] = [row for row in scene.warehouse.deleted if row.identifier.namespace != namespace]


def properties(scene: Scene) -> Answer:
    """POST changes to a namespace's properties."""
    namespace, body = scene.namespace, scene.body()
    updates, removals = dict(body.get("updates") or {}), list(body.get("removals") or [])
    if scene.temperament.checks_names and "location" in updates:
        raise said(
            400,
            "LocationCannotBeUpdated",
            "Namespace property `location` cannot be updated.",
            f'Location: "{updates["location"]}"',
        )
    with scene.warehouse.lock:
        scene.need_namespace(namespace)
        held = scene.warehouse.properties_of(namespace)
        removed = [name for name in removals if held.pop(name, None) is not None]
        held.update(updates)
    missing = [name for name in removals if name not in removed]
    return json_answer({"updated": list(updates), "removed": removed, "missing": missing})


def _check_levels(scene: Scene, namespace: Levels) -> None:
    if scene.temperament.checks_names and any("." in level for level in namespace):
        refusal = namespace_refused(namespace)
        assert refusal is not None
        raise refusal


def _check_location(scene: Scene, location: str | None) -> None:
    if location is not None and not location.startswith(scene.warehouse.root + "/"):
        raise scene.temperament.dialect.location_outside(location, scene.warehouse.root)
