-- The table is not named `snapshots`: another server may keep one of that name in the same database.
-- Snapshots of sandboxes. They outlive their sandbox and never expire. `image` is what the runtime
-- calls the stored file system; `parent_id` is the snapshot that the sandbox was created from.
CREATE TABLE sandbox_snapshots (
    id          TEXT    NOT NULL PRIMARY KEY,
    sandbox_id  TEXT    NOT NULL,
    name        TEXT,
    tenant      TEXT,
    owner       TEXT,
    state       TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    message     TEXT    NOT NULL,
    image       TEXT,
    size_bytes  BIGINT,
    parent_id   TEXT,
    created_at  BIGINT  NOT NULL,
    changed_at  BIGINT  NOT NULL
);
CREATE INDEX sandbox_snapshots_created_at ON sandbox_snapshots (created_at DESC, id DESC);
CREATE INDEX sandbox_snapshots_state ON sandbox_snapshots (state);
