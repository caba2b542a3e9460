-- Resource use of sandboxes. A row holds a stretch of samples; a sandbox has a fixed number of places
-- for each step, so that its oldest stretch is overwritten. Times are Unix seconds.
CREATE TABLE sandbox_metrics (
    id         TEXT    NOT NULL,
    step       INTEGER NOT NULL,
    place      INTEGER NOT NULL,
    start      BIGINT  NOT NULL,
    written_at BIGINT  NOT NULL,
    points     BYTEA   NOT NULL,
    PRIMARY KEY (id, step, place)
);
CREATE INDEX sandbox_metrics_written_at ON sandbox_metrics (id, written_at);

-- Commands that the execd of a sandbox reported. Numbers begin again when execd does, so the time of
-- the start belongs to the key. Times are Unix microseconds; that of the report is Unix seconds.
CREATE TABLE sandbox_commands (
    id          TEXT    NOT NULL,
    started_at  BIGINT  NOT NULL,
    number      BIGINT  NOT NULL,
    kind        TEXT    NOT NULL,
    command     TEXT    NOT NULL,
    cwd         TEXT,
    uid         BIGINT,
    finished_at BIGINT,
    exit_code   INTEGER,
    error       TEXT,
    reported_at BIGINT  NOT NULL,
    PRIMARY KEY (id, started_at, number)
);
CREATE INDEX sandbox_commands_reported_at ON sandbox_commands (id, reported_at);
