-- Creates without an idempotency key whose answer has not been written: no client knows the sandbox.
-- A row goes just before its answer does; what a crash leaves is removed at the next start.
CREATE TABLE unanswered_creates (
    id         TEXT   PRIMARY KEY,
    image      TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);

-- Idempotency keys of creates: digests of the key with its API key, and of the body.
CREATE TABLE create_keys (
    key        BLOB   PRIMARY KEY,
    body       BLOB   NOT NULL,
    sandbox_id TEXT   NOT NULL,
    used_at    BIGINT NOT NULL
);
CREATE INDEX create_keys_used_at ON create_keys (used_at);
