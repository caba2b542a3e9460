-- Resource use of sandboxes. A row holds a stretch of samples; a sandbox has a fixed number of places
-- for each step, so that its oldest stretch is overwritten. Times are Unix seconds.
CREATE TABLE sandbox_metrics (
    id         TEXT    NOT NULL,
    step       INTEGER NOT NULL,
    place      INTEGER NOT NULL,
    start      BIGINT  NOT NULL,
    written_at BIGINT  NOT NULL,
    points     BLOB    NOT NULL,
    PRIMARY KEY (id, step, place)
);
CREATE INDEX sandbox_metrics_written_at ON sandbox_metrics (id, written_at);
