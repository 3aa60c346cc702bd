"""The facts of every dataset in scope, streamed: what ``reroot plan``, ``move`` and ``check`` judge.

Responsible for: one read-only statement over the control plane's tables and the ledger, and its server-side cursor.
Must not know: which dataset may move (``producer.plan`` says it), any catalog.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from worker.controlplane.connection import Connection, column_type, translated
from worker.controlplane.facts import DatasetFacts, Scope
from worker.identifiers import LEGACY_NAMESPACE
from worker.moves.machine import Direction, State
from worker.moves.ports import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterator

FETCH: Final = 2000
"""Rows that one fetch of the cursor brings: what the plan holds in memory at once."""

OWN_WAREHOUSE: Final = "{workspace_hex}"
"""The warehouse template that keeps every workspace apart; used where none is configured."""

# Names are compared within one warehouse, among all datasets, whatever the scope: a conflict has two ends, and only
# one of them may be in scope. `identifiers` is the one pass over the log; everything after it is per dataset. A
# dataset that has its place stands there under the name that its rows carry, late rows with the legacy prefix too.
# Twins but for their case come first in the order of each window, so that both windows of a name share one sort.
_STATEMENT: Final = """
WITH identifiers AS MATERIALIZED (
    SELECT l.dataset_id, l.iceberg_table, count(*) AS log_rows,
           count(*) FILTER (WHERE l.finished_at > now() - interval '1 day') AS recent_rows
    FROM iceberg_sync_log l
    WHERE l.status = 'succeeded'
    GROUP BY l.dataset_id, l.iceberg_table
), places AS MATERIALIZED (
    SELECT d.id, d.workspace_id, d.iceberg_namespace, d.schema_id,
           s.id IS NOT NULL AS schema_exists, s.slug AS schema_slug,
           c.id IS NOT NULL AS catalog_exists, c.slug AS catalog_slug, c.workspace_id AS catalog_workspace_id,
           coalesce(t.warehouse, replace(%(warehouse)s, '{workspace_hex}',
                                         replace(lower(d.workspace_id::text), '-', ''))) AS warehouse,
           CASE WHEN d.iceberg_namespace IS NOT NULL THEN d.iceberg_namespace
                WHEN c.workspace_id = d.workspace_id THEN c.slug || '.' || s.slug END AS place
    FROM datasets d
    LEFT JOIN schemas s ON s.id = d.schema_id
    LEFT JOIN catalogs c ON c.id = s.catalog_id
    LEFT JOIN reroot.tenants t ON t.workspace_id = d.workspace_id::text
), crowded AS (
    SELECT warehouse, place FROM places WHERE place IS NOT NULL
    GROUP BY warehouse, place HAVING min(workspace_id::text) <> max(workspace_id::text)
), named AS (
    SELECT i.dataset_id, i.iceberg_table COLLATE "C" AS iceberg_table, i.log_rows, i.recent_rows, p.warehouse,
           lower(i.iceberg_table) COLLATE "C" AS folded,
           i.dataset_id::text COLLATE "C" AS holder,
           coalesce(starts_with(i.iceberg_table, %(prefix)s), false) AS legacy,
           p.id IS NOT NULL AND p.iceberg_namespace IS NULL AS unplaced,
           CASE WHEN starts_with(i.iceberg_table, %(prefix)s)
                THEN p.place || '.' || substr(i.iceberg_table, length(%(prefix)s) + 1)
                WHEN starts_with(i.iceberg_table, p.iceberg_namespace || '.')
                THEN i.iceberg_table END COLLATE "C" AS target
    FROM identifiers i
    LEFT JOIN places p ON p.id = i.dataset_id
), claims AS (
    SELECT n.dataset_id, n.iceberg_table, n.log_rows, n.recent_rows, n.legacy,
           n.legacy AND n.unplaced
           AND min(n.holder) FILTER (WHERE n.unplaced) OVER source
               <> max(n.holder) FILTER (WHERE n.unplaced) OVER source AS source_shared,
           n.target IS NOT NULL AND min(n.holder) OVER target <> max(n.holder) OVER target AS target_shared,
           min(n.iceberg_table) OVER source_folded <> max(n.iceberg_table) OVER source_folded
           OR n.target IS NOT NULL AND min(n.target) OVER target_folded <> max(n.target) OVER target_folded AS case_twin
    FROM (SELECT *, lower(target COLLATE "default") COLLATE "C" AS target_lower FROM named) n
    WINDOW source AS (PARTITION BY n.warehouse, n.folded, n.iceberg_table),
           source_folded AS (PARTITION BY n.warehouse, n.folded),
           target AS (PARTITION BY n.warehouse, n.target_lower, n.target),
           target_folded AS (PARTITION BY n.warehouse, n.target_lower)
), tables AS (
    SELECT dataset_id, sum(log_rows) AS succeeded_rows,
           coalesce(sum(log_rows) FILTER (WHERE legacy), 0) AS legacy_rows,
           count(*) FILTER (WHERE legacy) AS legacy_identifiers,
           min(iceberg_table COLLATE "C") FILTER (WHERE legacy) AS source_identifier,
           bool_or(source_shared) AS source_shared,
           bool_or(target_shared) AS target_shared,
           sum(recent_rows) AS recent_rows,
           bool_or(case_twin) AS case_twin
    FROM claims
    GROUP BY dataset_id
)
SELECT coalesce(p.id, n.dataset_id)::text AS dataset_id, p.id IS NOT NULL AS exists, p.workspace_id::text,
       p.iceberg_namespace, p.schema_id::text, coalesce(p.schema_exists, false), p.schema_slug,
       coalesce(p.catalog_exists, false), p.catalog_slug, p.catalog_workspace_id::text,
       coalesce(n.succeeded_rows, 0)::bigint, coalesce(n.legacy_rows, 0)::bigint,
       coalesce(n.legacy_identifiers, 0), n.source_identifier,
       coalesce(n.source_shared, false), coalesce(n.target_shared, false),
       m.state, m.direction, m.claim, m.park_code, r.dataset_id IS NOT NULL,
       coalesce(n.recent_rows, 0)::bigint, coalesce(n.case_twin, false), w.strategy, coalesce(w.set_by_operator, false),
       x.place IS NOT NULL
FROM places p
FULL JOIN tables n ON n.dataset_id = p.id
LEFT JOIN reroot.moves m ON m.dataset_id = coalesce(p.id, n.dataset_id)::text
LEFT JOIN (SELECT DISTINCT dataset_id FROM reroot.pairs) r ON r.dataset_id = m.dataset_id
LEFT JOIN reroot.warehouses w ON w.warehouse = p.warehouse
LEFT JOIN crowded x ON x.warehouse = p.warehouse AND x.place = p.place
WHERE {scope}
ORDER BY p.catalog_slug COLLATE "C" NULLS LAST, p.schema_slug COLLATE "C" NULLS LAST, coalesce(p.id, n.dataset_id)
"""


def stream_facts(connection: Connection, scope: Scope, *, warehouse: str = OWN_WAREHOUSE) -> Iterator[DatasetFacts]:
    """Every dataset in scope, ordered by catalog slug, schema slug and id: the same order each time.

    ``warehouse`` is the setting: a fixed name, or a template with ``{workspace_hex}``. Ids must be normalised
    (``scoping``). Reads in one transaction of its own, on one snapshot; memory does not grow with the rows.
    Raises ControlPlaneError.
    """
    condition, parameters = _scope(connection, scope)
    query = sql.SQL(_STATEMENT.replace("{workspace_hex}", "{{workspace_hex}}")).format(scope=condition)
    with translated(), connection.transaction():
        # The aggregates over a large log would spill at the server's default of 4 MB, and a cursor is planned for its
        # first tenth of rows where nothing says that all of them are read.
        connection.execute("SET LOCAL work_mem = '64MB'")
        connection.execute("SET LOCAL cursor_tuple_fraction = 1.0")
        # How many rows a filter leaves of the statement's parts is a guess, and a nested loop over a wrong one takes
        # ten times as long (9.6 s against 0.9 s for one catalog of a hundred).
        connection.execute("SET LOCAL enable_nestloop = off")
        connection.execute("SET LOCAL transaction_read_only = on")
        with connection.cursor(name="reroot_plan") as cursor:
            cursor.itersize = FETCH
            cursor.execute(query, {"prefix": LEGACY_NAMESPACE + ".", "warehouse": warehouse, **parameters})
            for row in cursor:
                yield _facts(row)


def _scope(connection: Connection, scope: Scope) -> tuple[sql.Composable, dict[str, Any]]:
    conditions: list[sql.Composable] = [sql.SQL("true")]
    parameters: dict[str, Any] = {}
    if scope.dataset_ids is not None:
        kind = column_type(connection, "datasets", "id")
        conditions.append(sql.SQL("coalesce(p.id, n.dataset_id) = ANY(%(ids)s::{}[])").format(kind))
        parameters["ids"] = list(scope.dataset_ids)
    if scope.workspace_id is not None:
        conditions.append(sql.SQL("p.workspace_id::text = %(workspace)s"))
        parameters["workspace"] = scope.workspace_id
    if scope.catalog_slug is not None:
        conditions.append(sql.SQL("p.catalog_slug = %(catalog)s"))
        parameters["catalog"] = scope.catalog_slug
    return sql.SQL(" AND ").join(conditions), parameters


def _facts(row: tuple[Any, ...]) -> DatasetFacts:
    values: dict[str, Any] = dict(zip(_FIELDS, row, strict=True))
    values["state"] = values["state"] and State(values["state"])
    values["direction"] = values["direction"] and Direction(values["direction"])
    values["strategy"] = values["strategy"] and Strategy(values["strategy"])
    return DatasetFacts(**values)


_FIELDS: Final = tuple(field.name for field in fields(DatasetFacts))
"""The statement's columns, in its order."""
