-- Slugs: how a catalog or a schema gets its physical name, once, from the name that people see.
--
-- These functions run inside other programs' transactions, under roles that know nothing of schema reroot. So the
-- search path is pinned, the triggers run with the rights of whoever migrated (they must see every slug of the scope,
-- whatever the inserting role may see), and nothing here waits without a bound.

-- The slug that a name asks for, before anybody else's is looked at. The one place where a name becomes a slug.
-- Letters that Unicode does not decompose are spelled out, in both cases: the C locale folds no capital beyond ASCII.
-- What leaves nothing (another script, emoji, no name) takes the id instead.
CREATE OR REPLACE FUNCTION reroot.slugify(name text, id text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH unaccented AS (
        SELECT regexp_replace(
            normalize(coalesce(name, ''), NFD),
            '[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]', '', 'g'
        ) AS letters
    ), spelled AS (
        SELECT translate(
            replace(replace(replace(replace(replace(replace(replace(replace(
                letters, 'ß', 'ss'), 'ẞ', 'SS'), 'æ', 'ae'), 'Æ', 'AE'), 'œ', 'oe'), 'Œ', 'OE'), 'þ', 'th'), 'Þ', 'TH'),
            'øØđĐłŁðÐħĦŧŦı', 'oOdDlLdDhHtTi'
        ) AS letters
        FROM unaccented
    ), joined AS (
        SELECT btrim(regexp_replace(lower(letters COLLATE "C"), '[^a-z0-9]+', '_', 'g'), '_') AS slug FROM spelled
    )
    SELECT coalesce(
        nullif(rtrim(left(slug, 63), '_'), ''),
        'id_' || coalesce(
            nullif(left(regexp_replace(lower(id COLLATE "C"), '[^a-z0-9]+', '', 'g'), 60), ''),
            left(encode(sha256(convert_to(coalesce(id, ''), 'UTF8')), 'hex'), 32)
        )
    )
    FROM joined
$$;

-- The n-th slug of those that ask for the same one: base, base_2, base_3, … never longer than 63 characters.
-- Called by take_slug alone, whose search path it shares: one of its own would keep it from being inlined.
CREATE OR REPLACE FUNCTION reroot.numbered_slug(base text, n integer) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN n = 1 THEN base ELSE rtrim(left(base, 62 - length(n::text)), '_') || '_' || n END
$$;

-- Where slugs are locked: the key space of two integers, of which the first is ours (0x5245524F). The space of one
-- bigint belongs to the control plane's dataset locks.
CREATE OR REPLACE FUNCTION reroot.slug_key(relation regclass, scope text, slug text) RETURNS integer
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT hashtext(relation::oid::text || '/' || coalesce(scope, '') || '/' || slug)
$$;

-- Keep a slug that looks free for this transaction. False: another transaction is taking it and is still open; then
-- the next number is as good. It is waited for, since it mostly ends at once and may roll back, but for half a second
-- (reroot.slug_patience, in seconds) and in vain once per transaction: two transactions that insert the same names in
-- a different order would otherwise end in a deadlock, in a program that has never seen one here.
CREATE OR REPLACE FUNCTION reroot.lock_slug(relation regclass, scope text, slug text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    key integer := reroot.slug_key(relation, scope, slug);
    held integer := coalesce(nullif(current_setting('reroot.slug_locks', true), ''), '0');
    patience double precision := coalesce(nullif(current_setting('reroot.slug_patience', true), ''), '0.5');
    patient_until timestamptz := clock_timestamp() + make_interval(secs => patience);
BEGIN
    -- The lock table is of one size for all. An import of thousands of names must not fill it; past this number the
    -- unique index alone decides, as it does between programs that give slugs themselves.
    IF held >= 1000 THEN
        RETURN true;
    END IF;
    WHILE NOT pg_try_advisory_xact_lock(1380274767, key) LOOP
        IF clock_timestamp() >= patient_until THEN
            PERFORM set_config('reroot.slug_patience', '0', true);
            RETURN false;
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
    PERFORM set_config('reroot.slug_locks', (held + 1)::text, true);
    RETURN true;
END
$$;

-- The first free slug for base among the rows of the same scope, locked for this transaction. Look, lock, look again:
-- VOLATILE, each look takes a new snapshot under READ COMMITTED and sees what was committed before the lock was had.
CREATE OR REPLACE FUNCTION reroot.take_slug(
    relation regclass, scope_column name, scope text, base text, reserved text[]
) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- The parameter is cast to the column's type, never the column to the parameter's. Without a length: a cast to
    -- char would otherwise cut the value.
    scope_type text := (
        SELECT format('%I.%I', n.nspname, t.typname)
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace n ON n.oid = t.typnamespace
        WHERE a.attrelid = relation AND a.attname = scope_column
    );
    place text := (
        SELECT format('%I.%I', n.nspname, c.relname)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation
    );
    holders text := format('FROM %s t WHERE t.%I = $1::%s AND t.slug IS NOT NULL', place, scope_column, scope_type);
    number integer := 1;
    candidate text;
    is_taken boolean;
BEGIN
    LOOP
        candidate := reroot.numbered_slug(base, number);
        EXECUTE 'SELECT $2 = ANY ($3) OR EXISTS (SELECT ' || holders || ' AND t.slug = $2)'
            INTO is_taken USING scope, candidate, reserved;
        IF is_taken THEN
            -- Twins are many or few: the next hundred numbers in one look.
            EXECUTE 'SELECT coalesce(min(n), $3 + 101) FROM generate_series($3 + 1, $3 + 100) n'
                ' WHERE NOT EXISTS (SELECT ' || holders || ' AND t.slug = reroot.numbered_slug($2, n))'
                INTO number USING scope, base, number;
            CONTINUE;
        END IF;
        IF reroot.lock_slug(relation, scope, candidate) THEN
            EXECUTE 'SELECT EXISTS (SELECT ' || holders || ' AND t.slug = $2)' INTO is_taken USING scope, candidate;
            IF NOT is_taken THEN
                RETURN candidate;
            END IF;
        END IF;
        number := number + 1;
    END LOOP;
END
$$;

-- BEFORE INSERT: a new row gets its slug, or keeps a valid one that the program has given.
-- Arguments: the scope's column, then the reserved slugs.
CREATE OR REPLACE FUNCTION reroot.give_slug() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    reserved text[] := TG_ARGV[1:];
    scope text;
BEGIN
    EXECUTE format('SELECT ($1).%I::text', TG_ARGV[0]) INTO scope USING NEW;
    IF NEW.slug IS NULL THEN
        NEW.slug := reroot.take_slug(
            TG_RELID, TG_ARGV[0], scope,
            reroot.slugify(NEW.name, coalesce(NEW.id::text, gen_random_uuid()::text)), reserved
        );
        RETURN NEW;
    END IF;
    IF NEW.slug !~ '^[a-z0-9][a-z0-9_]{0,62}$' THEN
        RAISE EXCEPTION 'slug "%" is invalid', NEW.slug USING ERRCODE = 'check_violation', HINT =
            'A slug matches ^[a-z0-9][a-z0-9_]*$ and has at most 63 characters. Left out, it is made from the name.';
    END IF;
    IF NEW.slug = ANY (reserved) THEN
        RAISE EXCEPTION 'slug "%" is reserved', NEW.slug USING ERRCODE = 'check_violation', HINT =
            'Left out, the slug is made from the name.';
    END IF;
    -- Whoever is making the same slug up at this moment must see ours, or we theirs; then the unique index decides.
    IF NOT reroot.lock_slug(TG_RELID, scope, NEW.slug) THEN
        PERFORM pg_advisory_xact_lock(1380274767, reroot.slug_key(TG_RELID, scope, NEW.slug));
    END IF;
    RETURN NEW;
END
$$;

-- BEFORE UPDATE, where the slug would change: it is physical, tables lie under it.
CREATE OR REPLACE FUNCTION reroot.keep_slug() RETURNS trigger
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF OLD.slug IS NOT NULL THEN
        RAISE EXCEPTION 'the slug "%" of %.% cannot be changed', OLD.slug, TG_TABLE_SCHEMA, TG_TABLE_NAME
            USING ERRCODE = 'check_violation', HINT = 'Tables lie under it. The name can be changed at any time.';
    END IF;
    RETURN NEW;
END
$$;

-- Give slugs to at most batch rows that were there before the trigger, in the order of their ids; returns how many.
-- Rows that somebody holds are left for the next call.
CREATE OR REPLACE FUNCTION reroot.backfill_slugs(
    relation regclass, scope_column name, reserved text[], batch integer
) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place text := (SELECT format('%I.%I', n.nspname, c.relname)
                   FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation);
    row record;
    given integer := 0;
BEGIN
    -- While this batch waited for a program's transaction, that one might wait for a slug of this batch.
    PERFORM set_config('reroot.slug_patience', '0', true);
    FOR row IN EXECUTE format(
        'SELECT ctid, id::text, name, %I::text AS scope FROM %s WHERE slug IS NULL ORDER BY id LIMIT %s'
        ' FOR NO KEY UPDATE SKIP LOCKED', scope_column, place, batch
    ) LOOP
        -- The row is locked, so its ctid stays.
        EXECUTE format('UPDATE %s SET slug = $1 WHERE ctid = $2', place)
            USING reroot.take_slug(relation, scope_column, row.scope, reroot.slugify(row.name, row.id), reserved),
                  row.ctid;
        given := given + 1;
    END LOOP;
    RETURN given;
END
$$;

REVOKE ALL ON FUNCTION
    reroot.numbered_slug(text, integer),
    reroot.slug_key(regclass, text, text),
    reroot.lock_slug(regclass, text, text),
    reroot.take_slug(regclass, name, text, text, text[]),
    reroot.give_slug(),
    reroot.keep_slug(),
    reroot.backfill_slugs(regclass, name, text[], integer)
FROM PUBLIC;
GRANT USAGE ON SCHEMA reroot TO PUBLIC;
GRANT EXECUTE ON FUNCTION reroot.slugify(text, text) TO PUBLIC;
