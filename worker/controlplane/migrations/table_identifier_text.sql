-- The same for an id that is at hand as text, in a control plane whose ids are of another type.
CREATE OR REPLACE FUNCTION reroot.table_identifier(dataset_id text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT reroot.table_identifier($1::@datasets_id@)
$$;
GRANT EXECUTE ON FUNCTION reroot.table_identifier(text) TO PUBLIC;
