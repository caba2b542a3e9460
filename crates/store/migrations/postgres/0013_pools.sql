-- Pools of sandboxes. The tenant of a pool without one is the empty text.
CREATE TABLE sandbox_pools (
    tenant      TEXT        NOT NULL,
    name        TEXT        NOT NULL,
    template    TEXT        NOT NULL,
    revision    TEXT        NOT NULL,
    buffer_max  BIGINT      NOT NULL,
    buffer_min  BIGINT      NOT NULL,
    pool_max    BIGINT      NOT NULL,
    pool_min    BIGINT      NOT NULL,
    created_at  TIMESTAMPTZ NOT NULL,
    changed_at  TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (tenant, name)
);
-- Sandboxes that were started for a pool. `settings` is a digest of the server's settings at the start,
-- `claim` is what the client of a claimed one asked for.
CREATE TABLE sandbox_pool_members (
    id          TEXT        NOT NULL PRIMARY KEY,
    tenant      TEXT        NOT NULL,
    pool        TEXT        NOT NULL,
    revision    TEXT        NOT NULL,
    settings    TEXT        NOT NULL,
    state       TEXT        NOT NULL,
    claim       TEXT,
    created_at  TIMESTAMPTZ NOT NULL,
    changed_at  TIMESTAMPTZ NOT NULL
);
CREATE INDEX sandbox_pool_members_pool ON sandbox_pool_members (tenant, pool);
