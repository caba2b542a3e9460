//! What the server must not forget: SQL store and migrations.
