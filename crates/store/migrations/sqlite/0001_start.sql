-- Times are Unix microseconds in UTC, except session expiry, which is Unix seconds.

-- One row: which server made a container (label opensandbox.io/server).
CREATE TABLE instance (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    id       TEXT    NOT NULL
);

-- What changed after create. Container labels cannot change, so renewals, metadata patches and
-- delete intents live here; a sandbox without a row is as its labels say.
CREATE TABLE sandbox_changes (
    id         TEXT   PRIMARY KEY,
    expires_at BIGINT,
    metadata   TEXT,
    deleted_at BIGINT
);

-- Sandboxes that are gone, and creates that failed.
CREATE TABLE sandbox_history (
    id         TEXT   PRIMARY KEY,
    image      TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at   BIGINT NOT NULL,
    outcome    TEXT   NOT NULL,
    reason     TEXT   NOT NULL,
    message    TEXT   NOT NULL,
    stages     TEXT   NOT NULL
);
CREATE INDEX sandbox_history_ended_at ON sandbox_history (ended_at DESC);

-- Console sessions.
CREATE TABLE sessions (
    id         TEXT   PRIMARY KEY,
    data       BLOB   NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX sessions_expires_at ON sessions (expires_at);
