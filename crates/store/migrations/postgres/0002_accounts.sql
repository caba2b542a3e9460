-- One row, which changes with every change of the tables below: how a server notices changes that
-- another process made.
CREATE TABLE accounts (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    revision BIGINT  NOT NULL
);
INSERT INTO accounts (only_row, revision) VALUES (1, 0);

-- Users of the console. `password` is an argon2id hash in PHC form.
CREATE TABLE users (
    id                  TEXT        PRIMARY KEY,
    name                TEXT        NOT NULL UNIQUE,
    password            TEXT        NOT NULL,
    role                TEXT        NOT NULL,
    tenant              TEXT,
    disabled            BOOLEAN     NOT NULL,
    created_at          TIMESTAMPTZ NOT NULL,
    password_changed_at TIMESTAMPTZ NOT NULL
);

-- API keys: SHA-256 digests of 256-bit secrets.
CREATE TABLE api_keys (
    id           TEXT        PRIMARY KEY,
    name         TEXT        NOT NULL,
    digest       BYTEA       NOT NULL UNIQUE,
    prefix       TEXT        NOT NULL,
    role         TEXT        NOT NULL,
    tenant       TEXT,
    created_at   TIMESTAMPTZ NOT NULL,
    expires_at   TIMESTAMPTZ,
    last_used_at TIMESTAMPTZ,
    revoked_at   TIMESTAMPTZ
);

-- The tenant whose sandbox it was; NULL for one of the server's operators.
ALTER TABLE sandbox_history ADD COLUMN tenant TEXT;
