-- The first layout. Keys are digests, so they spread over any number of shards; no sequence, no hot index:
-- the indexes of expiry begin with a bucket, a few bits of the key.
CREATE TABLE IF NOT EXISTS fencepost_fences (
    key           bytea       NOT NULL PRIMARY KEY,
    bucket        smallint    NOT NULL,
    tenant        text        NOT NULL,
    scope         text        NOT NULL,
    fields        jsonb       NOT NULL,
    seq           bigint,
    state         text        NOT NULL,
    on_lapse      text,
    token         bigint      NOT NULL,
    attempt       bigint      NOT NULL,
    effect_id     text,
    source_kind   text,
    source_id     text,
    first_seen    timestamptz NOT NULL,
    lease_expires timestamptz,
    sealed_at     timestamptz,
    released_at   timestamptz,
    expires_at    timestamptz,
    due_at        timestamptz,
    node          text        NOT NULL,
    revision      bigint      NOT NULL,
    record        bytea       NOT NULL
);
-- A claim pays for the first and a seal for the second; only a claim that may become a doubt pays for the third.
CREATE INDEX IF NOT EXISTS fencepost_fences_pending ON fencepost_fences (bucket, expires_at) INCLUDE (node)
    WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS fencepost_fences_settled ON fencepost_fences (bucket, expires_at) WHERE state <> 'pending';
CREATE INDEX IF NOT EXISTS fencepost_fences_due ON fencepost_fences (due_at, key) WHERE due_at IS NOT NULL;

-- Version heads, again heads, names and counts.
CREATE TABLE IF NOT EXISTS fencepost_rows (
    id         bytea    NOT NULL,
    kind       smallint NOT NULL,
    bucket     smallint NOT NULL,
    about      jsonb    NOT NULL,
    expires_at timestamptz,
    node       text     NOT NULL,
    revision   bigint   NOT NULL,
    record     bytea    NOT NULL,
    PRIMARY KEY (id, kind)
);
CREATE INDEX IF NOT EXISTS fencepost_rows_expiring ON fencepost_rows (bucket, expires_at) WHERE expires_at IS NOT NULL;

-- Each node keeps its own time floor: no row is hot across nodes.
CREATE TABLE IF NOT EXISTS fencepost_nodes (
    id      text        NOT NULL PRIMARY KEY,
    address text        NOT NULL,
    release text        NOT NULL,
    format  smallint    NOT NULL,
    started timestamptz NOT NULL,
    seen    timestamptz NOT NULL,
    floor   timestamptz NOT NULL
);

-- One row: the newest row format that may be written, since everybody reads it.
CREATE TABLE IF NOT EXISTS fencepost_meta (
    id     smallint NOT NULL PRIMARY KEY,
    format smallint NOT NULL
);
INSERT INTO fencepost_meta (id, format) VALUES (1, 1) ON CONFLICT (id) DO NOTHING;

-- For people. The phase is by the database's clock, as everywhere.
CREATE OR REPLACE VIEW fencepost_status AS
SELECT encode(key, 'hex') AS key, tenant, scope, fields, seq,
    CASE
        WHEN expires_at <= now() THEN 'expired'
        WHEN state <> 'pending' THEN state
        WHEN lease_expires > now() THEN 'pending'
        WHEN on_lapse = 'hold' THEN 'in_doubt'
        ELSE 'lapsed'
    END AS phase,
    token, attempt, effect_id, source_kind, source_id, first_seen, lease_expires, sealed_at, released_at, expires_at, node
FROM fencepost_fences;
