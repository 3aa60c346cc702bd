-- The control plane's given tables, for the demo and the tests only: in production other programs own them.
-- No foreign keys: an installation may have them or not, and every row must be deletable in any order here.

CREATE TABLE workspaces (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid()
);

CREATE TABLE catalogs (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL,
    name         text NOT NULL
);

CREATE TABLE schemas (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    catalog_id uuid NOT NULL,
    name       text NOT NULL
);

CREATE TABLE datasets (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL,
    schema_id    uuid,
    name         text NOT NULL
);

CREATE TABLE iceberg_sync_log (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset_id    uuid NOT NULL,
    mode          text NOT NULL,
    status        text NOT NULL,
    iceberg_table text,
    snapshot_id   bigint,
    row_count     bigint,
    error         text,
    started_at    timestamptz NOT NULL DEFAULT now(),
    finished_at   timestamptz
);
