"""Datasets and log rows per namespace, now and before the first move: what ``reroot check`` counts.

Responsible for: one read-only pass over the succeeded log rows.
Must not know: whether what is left may move (``producer.plan`` says it), any catalog.

*Before* is reconstructed: the rows that were there when the first move flipped, those of moved datasets counted where
they were then. Rows written since are counted in *now* alone: writers never stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from worker.controlplane.connection import translated
from worker.controlplane.facts import EVERYTHING, Scope
from worker.controlplane.scoping import dataset_condition
from worker.identifiers import LEGACY_NAMESPACE

if TYPE_CHECKING:
    from worker.controlplane.connection import Connection


@dataclass(frozen=True, slots=True)
class NamespaceCount:
    """Datasets with a table, and succeeded log rows, of one namespace.

    A dataset counts where the resolver sees it, its log rows where their identifiers say.
    """

    namespace: str
    datasets_before: int
    log_rows_before: int
    datasets_now: int
    log_rows_now: int


def namespaces(connection: Connection, scope: Scope = EVERYTHING) -> list[NamespaceCount]:
    """The counts of the datasets in scope, legacy first, then by name. Raises ControlPlaneError."""
    condition, parameters = dataset_condition(connection, scope)
    with translated(), connection.transaction():
        connection.execute("SET LOCAL work_mem = '64MB'")
        rows: Any = connection.execute(
            sql.SQL(_STATEMENT).format(scope=condition), {"legacy": LEGACY_NAMESPACE, **parameters}
        ).fetchall()
    return [NamespaceCount(*row) for row in rows]


# `moved` is what stands under its place by a flip of ours. The namespace of any other row's identifier is what
# precedes its last dot, unless the column tells more: a table's name may hold dots, a slug may not.
_STATEMENT: Final = """
WITH moved AS (
    SELECT dataset_id, flipped_at FROM reroot.moves
    WHERE flipped_at IS NOT NULL AND direction = 'out'
), log AS (
    SELECT l.dataset_id, l.iceberg_table, d.iceberg_namespace, d.id IS NOT NULL AS known,
           m.dataset_id IS NOT NULL AS moved,
           coalesce(l.finished_at, l.started_at, '-infinity')
               < coalesce((SELECT min(flipped_at) FROM moved), 'infinity') AS early
    FROM iceberg_sync_log l
    LEFT JOIN datasets d ON d.id = l.dataset_id
    LEFT JOIN schemas s ON s.id = d.schema_id
    LEFT JOIN catalogs c ON c.id = s.catalog_id
    LEFT JOIN moved m ON m.dataset_id = l.dataset_id::text
    WHERE l.status = 'succeeded' AND l.iceberg_table IS NOT NULL AND {scope}
), grouped AS (
    SELECT dataset_id, iceberg_table, iceberg_namespace, known, moved, early, count(*) AS log_rows
    FROM log GROUP BY dataset_id, iceberg_table, iceberg_namespace, known, moved, early
), placed AS (
    SELECT dataset_id, known, early, log_rows,
           coalesce(iceberg_namespace, %(legacy)s) AS resolved, moved,
           CASE WHEN starts_with(iceberg_table, %(legacy)s || '.') THEN %(legacy)s
                WHEN starts_with(iceberg_table, iceberg_namespace || '.') THEN iceberg_namespace
                ELSE regexp_replace(iceberg_table, '[.][^.]*$', '') END AS logged
    FROM grouped
), counted AS (
    SELECT logged AS namespace, NULL AS dataset_before, NULL AS dataset_now, 0 AS rows_before, log_rows AS rows_now
    FROM placed
    UNION ALL
    SELECT CASE WHEN moved THEN %(legacy)s ELSE logged END, NULL, NULL, log_rows, 0 FROM placed WHERE early
    UNION ALL
    SELECT resolved, NULL, dataset_id::text, 0, 0 FROM placed WHERE known
    UNION ALL
    SELECT CASE WHEN moved THEN %(legacy)s ELSE resolved END, dataset_id::text, NULL, 0, 0
    FROM placed WHERE known AND early
)
SELECT namespace, count(DISTINCT dataset_before), sum(rows_before)::bigint,
       count(DISTINCT dataset_now), sum(rows_now)::bigint
FROM counted
GROUP BY namespace
ORDER BY namespace <> %(legacy)s, namespace COLLATE "C"
"""
