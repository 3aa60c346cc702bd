-- What keeps a database at head from being whole, one line each. What another program may drop is looked for by name,
-- what a broken run may leave by its state.
WITH expected (kind, relation, name) AS (
    VALUES ('column', 'catalogs', 'slug'), ('column', 'schemas', 'slug'), ('column', 'datasets', 'iceberg_namespace'),
           ('index', 'catalogs', 'reroot_catalogs_slug'), ('index', 'schemas', 'reroot_schemas_slug'),
           ('check', 'catalogs', 'reroot_slug_shape'), ('check', 'catalogs', 'reroot_slug_not_reserved'),
           ('check', 'schemas', 'reroot_slug_shape'), ('check', 'datasets', 'reroot_namespace_names_a_place'),
           ('trigger', 'catalogs', 'zz_reroot_give_slug'), ('trigger', 'catalogs', 'zz_reroot_keep_slug'),
           ('trigger', 'schemas', 'zz_reroot_give_slug'), ('trigger', 'schemas', 'zz_reroot_keep_slug')
), found (kind, relation, name, whole) AS (
    SELECT 'column', attrelid, attname, true FROM pg_attribute WHERE NOT attisdropped AND attnum > 0
    UNION ALL
    SELECT 'index', i.indrelid, c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    UNION ALL
    SELECT 'check', conrelid, conname, convalidated FROM pg_constraint WHERE contype = 'c'
    UNION ALL
    SELECT 'trigger', tgrelid, tgname, tgenabled <> 'D' FROM pg_trigger
), log_index (fits) AS (
    SELECT EXISTS (
        SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = to_regclass('iceberg_sync_log') AND a.attname = 'dataset_id' AND i.indisvalid
          AND (i.indpred IS NULL OR c.relname = 'reroot_sync_log_dataset')
    )
)
SELECT CASE WHEN f.name IS NULL THEN format('%s %s of %s is missing: reroot db upgrade', e.kind, e.name, e.relation)
            WHEN e.kind = 'trigger' THEN format('trigger %s of %s is disabled: ALTER TABLE %s ENABLE TRIGGER %s', e.name, e.relation,
                                             e.relation, e.name)
            ELSE format('%s %s of %s is not valid: reroot db upgrade', e.kind, e.name, e.relation) END
FROM expected e
LEFT JOIN found f ON f.kind = e.kind AND f.relation = to_regclass(e.relation) AND f.name = e.name
WHERE f.whole IS NOT TRUE
UNION ALL
SELECT format('index %s is not valid: reroot db upgrade', i.indexrelid::regclass)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = to_regnamespace('reroot') AND NOT i.indisvalid
UNION ALL
SELECT 'no index of iceberg_sync_log begins with dataset_id, so that every flip scans the log: reroot db upgrade'
FROM log_index WHERE NOT fits
