-- Pages of one tenant, and the entries that go first when there are too many.
CREATE INDEX audit_entries_tenant ON audit_entries (tenant, seq);
CREATE INDEX audit_entries_unsuccessful ON audit_entries (seq) WHERE outcome <> 'succeeded';
