-- Where a dataset's table lives, for programs in other languages: the resolver of worker/identifiers.py in SQL.
-- NULL: the dataset is unknown, or its log names tables outside its namespace only, and a guess would be worse.
-- @datasets@ and @log@ are the given tables, @datasets_id@ and @log_id@ the types of their dataset ids: the parameter is
-- cast, never the column. It runs with the owner's rights, since its callers may not be allowed to read the log.
CREATE OR REPLACE FUNCTION reroot.table_identifier(dataset_id @parameter@) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH resolved AS (
        SELECT coalesce(d.iceberg_namespace, 'datasets') AS namespace
        FROM @datasets@ d WHERE d.id = $1::@datasets_id@
    ), named AS (
        SELECT CASE
                   WHEN starts_with(l.iceberg_table, r.namespace || '.')
                       THEN nullif(substr(l.iceberg_table, length(r.namespace) + 2), '')
                   WHEN starts_with(l.iceberg_table, 'datasets.')
                       THEN nullif(substr(l.iceberg_table, length('datasets.') + 1), '')
               END AS name,
               l.started_at, l.finished_at, l.id
        FROM resolved r, @log@ l
        WHERE l.dataset_id = $1::text::@log_id@ AND l.status = 'succeeded' AND l.iceberg_table IS NOT NULL
    )
    SELECT r.namespace || '.' || CASE
               WHEN EXISTS (SELECT FROM named) THEN (
                   SELECT n.name FROM named n WHERE n.name IS NOT NULL
                   ORDER BY n.finished_at DESC NULLS LAST, n.started_at DESC NULLS LAST, n.id DESC LIMIT 1
               )
               ELSE 'ds_' || lower(replace($1::text, '-', '') COLLATE "C")
           END
    FROM resolved r
$$;
GRANT USAGE ON SCHEMA reroot TO PUBLIC;
GRANT EXECUTE ON FUNCTION reroot.table_identifier(@parameter@) TO PUBLIC;
