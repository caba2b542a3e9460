-- Subscriptions to events. `events` is a JSON list of types; an empty one stands for all. The secret is
-- NULL for a subscription of the configuration, which has it.
CREATE TABLE webhooks (
    id            TEXT    PRIMARY KEY,
    name          TEXT    NOT NULL,
    url           TEXT    NOT NULL,
    secret        TEXT,
    events        TEXT    NOT NULL,
    tenant        TEXT,
    is_configured BOOLEAN NOT NULL,
    disabled      TEXT,
    created_at    BIGINT  NOT NULL
);

-- One row while what happens to sandboxes is announced.
CREATE TABLE webhook_tracking (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1)
);

-- What was last announced of each sandbox. It changes in the transaction that adds the deliveries, so
-- whatever a crash leaves unannounced is the difference from what is.
CREATE TABLE webhook_announced (
    id         TEXT   PRIMARY KEY,
    state      TEXT   NOT NULL,
    reason     TEXT   NOT NULL,
    expires_at BIGINT,
    tenant     TEXT,
    metadata   TEXT   NOT NULL
);

-- Ends that are in the history and not announced yet, added in the transaction that ends the sandbox.
CREATE TABLE webhook_ends (
    id TEXT PRIMARY KEY
);

-- Messages to receivers: those under way, and for a while those that were delivered or given up.
CREATE TABLE webhook_deliveries (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook_id TEXT    NOT NULL,
    event_id   TEXT    NOT NULL,
    event_type TEXT    NOT NULL,
    sandbox_id TEXT,
    body       TEXT    NOT NULL,
    status     TEXT    NOT NULL,
    attempts   INTEGER NOT NULL,
    created_at BIGINT  NOT NULL,
    due_at     BIGINT  NOT NULL,
    ended_at   BIGINT,
    answer     INTEGER,
    error      TEXT
);
CREATE UNIQUE INDEX webhook_deliveries_once ON webhook_deliveries (webhook_id, event_id);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, status, due_at, seq);
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (status, ended_at);
