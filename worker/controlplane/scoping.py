"""What a command's scope means in the tables: ids as these write them, which workspaces and catalogs exist, conditions.

Responsible for: reading ids, workspaces and catalogs as people type them; the ledger's rows of a scope.
Must not know: what is done with the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from worker.controlplane.connection import column_type, translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.controlplane.connection import Connection
    from worker.controlplane.facts import Scope


def dataset_ids(connection: Connection, given: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The given ids as the control plane writes them, and those that cannot be an id at all.

    Postgres reads each as the type of ``datasets.id`` and writes it back: the ledger and the lock's key are text, so
    that a capital letter or a leading zero would name another dataset. Duplicates are dropped.

    Raises ControlPlaneError.
    """
    kind = column_type(connection, "datasets", "id")
    written = _written(connection, kind, given)
    if written is None:
        each = {text: _written(connection, kind, [text]) for text in given}
        unfit = tuple(text for text, one in each.items() if one is None)
        written = [one[0] for one in each.values() if one is not None]
        return tuple(dict.fromkeys(written)), unfit
    return tuple(dict.fromkeys(written)), ()


def workspace_id(connection: Connection, given: str) -> str | None:
    """The workspace's id as the tables write it; None where neither they nor the ledger have it.

    Raises ControlPlaneError.
    """
    written = _written(connection, column_type(connection, "workspaces", "id"), [given])
    return written[0] if written is not None and written[0] in workspaces(connection) else None


def workspaces(connection: Connection) -> list[str]:
    """The ids of all workspaces, also those that only the ledger has. Raises ControlPlaneError."""
    return _texts(connection, "SELECT id::text FROM workspaces UNION SELECT workspace_id FROM reroot.moves ORDER BY 1")


def catalogs(connection: Connection, workspace: str | None) -> list[str]:
    """The slugs of all catalogs, or of a workspace's; also those that only the ledger has. Raises ControlPlaneError."""
    return _texts(connection, _CATALOGS, {"workspace": workspace})


def ledger_condition(scope: Scope) -> tuple[sql.Composable, dict[str, Any]]:
    """The condition on a row of ``reroot.moves``, and its parameters; a catalog is the one that the row goes to."""
    return _condition(
        scope,
        "dataset_id = ANY(%(ids)s)",
        "workspace_id = %(workspace)s",
        "split_part(target_namespace, '.', 1) = %(catalog)s",
    )


def dataset_condition(connection: Connection, scope: Scope) -> tuple[sql.Composable, dict[str, Any]]:
    """The condition on a log row ``l``, its dataset ``d`` and the dataset's catalog ``c``. Raises ControlPlaneError."""
    kind = column_type(connection, "iceberg_sync_log", "dataset_id").as_string()
    return _condition(
        scope,
        f"l.dataset_id = ANY(%(ids)s::{kind}[])",
        "d.workspace_id::text = %(workspace)s",
        "c.slug = %(catalog)s",
    )


def _condition(scope: Scope, ids: str, workspace: str, catalog: str) -> tuple[sql.Composable, dict[str, Any]]:
    given = {"ids": scope.dataset_ids, "workspace": scope.workspace_id, "catalog": scope.catalog_slug}
    conditions = {"ids": ids, "workspace": workspace, "catalog": catalog}
    parameters = {name: list(value) if name == "ids" else value for name, value in given.items() if value is not None}
    parts = ["true", *(conditions[name] for name in parameters)]
    return sql.SQL(" AND ".join(parts)), parameters


def _written(connection: Connection, kind: sql.SQL, texts: Sequence[str]) -> list[str] | None:
    """The ids as Postgres writes them, in their order; None where any of them cannot be one."""
    statement = sql.SQL("SELECT (id::{})::text FROM unnest(%s::text[]) WITH ORDINALITY t(id, place) ORDER BY place")
    try:
        with translated(), connection.transaction():
            return [row[0] for row in connection.execute(statement.format(kind), (list(texts),)).fetchall()]
    except psycopg.DataError:
        return None


def _texts(connection: Connection, statement: str, parameters: dict[str, Any] | None = None) -> list[str]:
    with translated():
        return [row[0] for row in connection.execute(statement.encode(), parameters).fetchall()]


_CATALOGS: Final = """
SELECT slug FROM catalogs WHERE slug IS NOT NULL AND (%(workspace)s::text IS NULL OR workspace_id::text = %(workspace)s)
UNION
SELECT split_part(target_namespace, '.', 1) FROM reroot.moves
WHERE %(workspace)s::text IS NULL OR workspace_id = %(workspace)s
ORDER BY 1
"""
