-- Files of another server that were imported, by sandbox: SHA-256 digests of their contents.
CREATE TABLE imported_files (
    id       TEXT PRIMARY KEY,
    expiry   BYTEA,
    metadata BYTEA
);
