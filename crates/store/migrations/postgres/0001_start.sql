-- Console session expiry is in Unix seconds, stage times are in Unix microseconds; all other times
-- are TIMESTAMPTZ.

-- One row: which server made a container (label opensandbox.io/server).
CREATE TABLE instance (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    id       TEXT    NOT NULL
);

-- One row: the token of the server that uses the store. Each write locks the row in share mode, so
-- a server that takes the store over waits for writes under way and then excludes later ones.
CREATE TABLE holder (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    token    UUID    NOT NULL
);

-- What changed after create. Container labels cannot change, so renewals, metadata patches and
-- delete intents live here; a sandbox without a row is as its labels say.
CREATE TABLE sandbox_changes (
    id         TEXT PRIMARY KEY,
    expires_at TIMESTAMPTZ,
    metadata   JSONB,
    deleted_at TIMESTAMPTZ
);

-- Sandboxes that are gone, and creates that failed.
CREATE TABLE sandbox_history (
    id         TEXT        PRIMARY KEY,
    image      TEXT        NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    ended_at   TIMESTAMPTZ NOT NULL,
    outcome    TEXT        NOT NULL,
    reason     TEXT        NOT NULL,
    message    TEXT        NOT NULL,
    stages     JSONB       NOT NULL
);
CREATE INDEX sandbox_history_ended_at ON sandbox_history (ended_at DESC);

-- Console sessions.
CREATE TABLE sessions (
    id         TEXT   PRIMARY KEY,
    data       BYTEA  NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX sessions_expires_at ON sessions (expires_at);

-- Creates without an idempotency key whose answer has not been written: no client knows the sandbox.
-- A row goes just before its answer does; what a crash leaves is removed at the next start.
CREATE TABLE unanswered_creates (
    id         TEXT        PRIMARY KEY,
    image      TEXT        NOT NULL,
    created_at TIMESTAMPTZ NOT NULL
);

-- Idempotency keys of creates: digests of the key with its API key, and of the body.
CREATE TABLE create_keys (
    key        BYTEA       PRIMARY KEY,
    body       BYTEA       NOT NULL,
    sandbox_id TEXT        NOT NULL,
    used_at    TIMESTAMPTZ NOT NULL
);
CREATE INDEX create_keys_used_at ON create_keys (used_at);
