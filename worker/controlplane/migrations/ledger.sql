-- What Reroot itself remembers. Every table lies in schema reroot; none has a foreign key into the control plane's
-- tables, and dataset ids are text, so that other programs' deletes and types stay their own affair.

CREATE TABLE reroot.moves (
    dataset_id          text PRIMARY KEY,
    workspace_id        text NOT NULL,
    -- Where the table is, as the last attempt found it; NULL before the first.
    warehouse           text,
    state               text NOT NULL DEFAULT 'queued'
                        CONSTRAINT moves_state_known CHECK (state IN ('queued', 'flipped', 'done', 'parked')),
    direction           text NOT NULL DEFAULT 'out'
                        CONSTRAINT moves_direction_known CHECK (direction IN ('out', 'back')),
    -- Raised by every claim and by every operator's command: the fence of the ledger.
    claim               bigint NOT NULL DEFAULT 0,
    attempts            integer NOT NULL DEFAULT 0,
    busy_count          integer NOT NULL DEFAULT 0,
    busy_since          timestamptz,
    -- The identifier in the legacy namespace, as the log has it, and the place it goes to.
    source_identifier   text NOT NULL,
    table_name          text NOT NULL,
    target_namespace    text NOT NULL,
    -- Known from the first look at the old name on.
    table_uuid          text,
    -- Set by the flip: where the name that was left pointed to then, and what readers find since.
    old_location        text,
    old_sequence_number bigint,
    snapshot_id         bigint,
    row_count           bigint,
    flipped_at          timestamptz,
    -- When the resolver last changed its mind, whatever became of the move since: readers may hold the other name.
    resolver_changed_at timestamptz,
    -- The metadata location that a person gave up by `reroot resolve`: the only one that may be lost.
    given_up            text,
    -- Park codes that an operator accepted by `reroot retry --accept`: attempts pass over what they say.
    accepted            text[] NOT NULL DEFAULT '{}'
                        CONSTRAINT moves_accepted_known CHECK (accepted <@ ARRAY['soak_unsupported']),
    done_at             timestamptz,
    planned_at          timestamptz NOT NULL DEFAULT now(),
    not_before          timestamptz NOT NULL DEFAULT now(),
    -- Set by the UPDATE that claims a row for publishing, cleared by the attempt that starts.
    published_at        timestamptz,
    -- Set by the sweeper with published_at, cleared by whoever takes it: every process does it before anything else.
    urgent              boolean NOT NULL DEFAULT false,
    -- Set by the claim, cleared by every end: set, and its lock not held by the backend below, means that it died.
    attempt_started_at  timestamptz,
    -- The backend that holds the lock of the last attempt. Writers hold and queue for the same lock.
    lock_pid            integer,
    worker              text,
    waiting_for         text,
    park_code           text,
    park_text           text,
    park_remedy         text,
    -- Of a divergence: the namespace of the name that has diverged from the live one.
    park_beside         text,
    updated_at          timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT moves_parked_says_why CHECK ((state = 'parked') = (park_code IS NOT NULL))
);

CREATE INDEX moves_by_due ON reroot.moves (not_before) WHERE state IN ('queued', 'flipped');
CREATE INDEX moves_flipped_by_due ON reroot.moves (not_before) WHERE state = 'flipped';
CREATE INDEX moves_urgent ON reroot.moves (not_before) WHERE urgent;
CREATE INDEX moves_by_state ON reroot.moves (state);

CREATE TABLE reroot.move_events (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset_id  text NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    claim       bigint NOT NULL,
    -- planned, claimed, flipped, done, parked, retry, wait, busy, withdrawn, …; `transition` is the picture's letter.
    event       text NOT NULL,
    transition  text,
    from_state  text,
    to_state    text,
    worker      text,
    detail      jsonb NOT NULL DEFAULT '{}'
);

CREATE INDEX move_events_by_dataset ON reroot.move_events (dataset_id, id);

-- The journal: every pointer that we intend to make or to take away, committed before the request, closed after it.
CREATE TABLE reroot.pointers (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset_id        text NOT NULL,
    claim             bigint NOT NULL,
    action            text NOT NULL
                      CONSTRAINT pointers_action_known CHECK (action IN ('register', 'rename', 'withdraw')),
    namespace         text NOT NULL,
    table_name        text NOT NULL,
    warehouse         text NOT NULL,
    table_uuid        text NOT NULL,
    metadata_location text NOT NULL,
    sequence_number   bigint NOT NULL,
    opened_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at         timestamptz,
    outcome           text CONSTRAINT pointers_outcome_known
                      CHECK (outcome IN ('kept', 'withdrawn', 'returned', 'unreadable', 'void')),
    CONSTRAINT pointers_closed_says_how CHECK ((closed_at IS NULL) = (outcome IS NULL))
);

CREATE INDEX pointers_by_dataset ON reroot.pointers (dataset_id, id);
CREATE INDEX pointers_open ON reroot.pointers (dataset_id) WHERE closed_at IS NULL;

-- What is known of a warehouse: whether it is away (one probe at a time asks it) and how tables are moved in it.
CREATE TABLE reroot.warehouses (
    warehouse   text PRIMARY KEY,
    strategy    text
                CONSTRAINT warehouses_strategy_known CHECK (strategy IN ('register', 'rename')),
    -- An operator's word; what was found out gives way to it.
    set_by_operator boolean NOT NULL DEFAULT false,
    reason      text,
    -- Datasets whose registration was refused though the name was free.
    refused     text[] NOT NULL DEFAULT '{}',
    down_since  timestamptz,
    down_until  timestamptz,
    down_reason text,
    updated_at  timestamptz NOT NULL DEFAULT now()
);

-- The warehouse of a workspace, where it is not given by the settings.
CREATE TABLE reroot.tenants (
    workspace_id text PRIMARY KEY,
    warehouse    text NOT NULL
);

-- Workers that are alive: written by each worker's sweeper, every round.
CREATE TABLE reroot.workers (
    worker      text PRIMARY KEY,
    queues      text[] NOT NULL,
    concurrency integer NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    seen_at     timestamptz NOT NULL DEFAULT now()
);

-- What there is to do now, running attempts included: the autoscaler counts it. Urgent is an open rename, whose table
-- readers miss, and a withdrawal in which an attempt died. What an attempt has ended waits as long as that attempt said.
CREATE VIEW reroot.due AS
SELECT m.dataset_id,
       'moves'::text AS queue,
       m.state,
       m.not_before,
       m.published_at,
       m.attempt_started_at,
       o.dataset_id IS NOT NULL AND (o.renaming OR m.attempt_started_at IS NOT NULL) AS urgent
FROM reroot.moves m
LEFT JOIN (
    SELECT p.dataset_id, bool_or(p.action = 'rename') AS renaming
    FROM reroot.pointers p
    WHERE p.closed_at IS NULL AND p.action IN ('rename', 'withdraw')
    GROUP BY p.dataset_id
) o USING (dataset_id)
WHERE m.state IN ('queued', 'flipped') AND m.not_before <= now();

-- Names that hold a dataset's table, or may, beside the one that the resolver gives: the name that a flip has left, until
-- it is withdrawn; the legacy name of a move that is being taken back; a registration before the flip, between attempts
-- too; a pointer in quarantine. Maintenance through such a name deletes what the resolver's name needs.
CREATE VIEW reroot.pairs AS
SELECT dataset_id, identifier, min(since) AS since
FROM (
    SELECT m.dataset_id,
           CASE m.direction WHEN 'out' THEN m.source_identifier ELSE m.target_namespace || '.' || m.table_name END,
           m.flipped_at
    FROM reroot.moves m
    WHERE m.flipped_at IS NOT NULL AND m.state IN ('flipped', 'parked')
    UNION ALL
    SELECT m.dataset_id, m.source_identifier, coalesce(m.resolver_changed_at, m.updated_at)
    FROM reroot.moves m
    WHERE m.flipped_at IS NULL AND m.direction = 'back' AND m.state IN ('queued', 'parked')
    UNION ALL
    SELECT p.dataset_id,
           CASE p.action WHEN 'register' THEN p.namespace || '.' || p.table_name
                ELSE 'reroot_withdrawn.' || left(p.table_name, 253 - length(p.id::text)) || '__' || p.id END,
           p.opened_at
    FROM reroot.pointers p
    WHERE p.closed_at IS NULL AND p.action IN ('register', 'withdraw')
) names (dataset_id, identifier, since)
GROUP BY dataset_id, identifier;
