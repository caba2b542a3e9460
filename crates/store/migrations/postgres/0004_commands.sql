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
