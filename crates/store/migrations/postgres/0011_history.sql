-- What an ended sandbox had been created with; NULL in rows of earlier releases. JSON, except the expiry.
ALTER TABLE sandbox_history ADD COLUMN metadata TEXT;
ALTER TABLE sandbox_history ADD COLUMN entrypoint TEXT;
ALTER TABLE sandbox_history ADD COLUMN resources TEXT;
ALTER TABLE sandbox_history ADD COLUMN expires_at TIMESTAMPTZ;

-- Pages of the history have one order, also of sandboxes that ended at the same moment.
DROP INDEX sandbox_history_ended_at;
DROP INDEX sandbox_history_tenant;
CREATE INDEX sandbox_history_ended_at ON sandbox_history (ended_at DESC, id);
CREATE INDEX sandbox_history_tenant ON sandbox_history (tenant, ended_at DESC, id);
