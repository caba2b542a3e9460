-- Templates of sandboxes. `spec` is the request as a JSON object; `image` is what the runtime calls the
-- image that was made ready; `log` is the end of what a build wrote, and `size_bytes` the size of what it
-- made. The table is not named `templates`: another server may keep one of that name in the same
-- database.
CREATE TABLE sandbox_templates (
    id          TEXT NOT NULL PRIMARY KEY,
    tenant      TEXT,
    owner       TEXT,
    spec        TEXT NOT NULL,
    metadata    TEXT NOT NULL,
    phase       TEXT NOT NULL,
    image       TEXT,
    message     TEXT,
    log         TEXT,
    size_bytes  BIGINT,
    created_at  TIMESTAMPTZ NOT NULL,
    changed_at  TIMESTAMPTZ NOT NULL
);
CREATE INDEX sandbox_templates_created_at ON sandbox_templates (created_at DESC, id DESC);
CREATE INDEX sandbox_templates_phase ON sandbox_templates (phase);
