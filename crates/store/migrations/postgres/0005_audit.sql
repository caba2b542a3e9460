-- The audit trail. `seq` orders the entries and is never used again; `id` keeps a repeated write from
-- adding an entry twice. `details` is JSON with everything that is not searched for.
CREATE TABLE audit_entries (
    seq         BIGINT      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id          TEXT        NOT NULL UNIQUE,
    at          TIMESTAMPTZ NOT NULL,
    action      TEXT        NOT NULL,
    outcome     TEXT        NOT NULL,
    actor_id    TEXT        NOT NULL,
    actor_name  TEXT        NOT NULL,
    object_kind TEXT        NOT NULL,
    object_id   TEXT        NOT NULL,
    tenant      TEXT,
    details     TEXT        NOT NULL
);
CREATE INDEX audit_entries_at ON audit_entries (at);
CREATE INDEX audit_entries_object ON audit_entries (object_id, seq);
