-- The tenant whose sandbox it is, for the history that is written when a later process finds it gone.
ALTER TABLE unanswered_creates ADD COLUMN tenant TEXT;
ALTER TABLE sandbox_changes ADD COLUMN tenant TEXT;
-- A tenant reads its own history.
CREATE INDEX sandbox_history_tenant ON sandbox_history (tenant, ended_at DESC);
