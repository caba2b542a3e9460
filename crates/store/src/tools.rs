//! Tools for operators: save a store, put a saved one back, look for damage, take over snapshots.

use std::path::Path;

use crate::{Location, inspection::Inspection, postgres, snapshot_migration, sqlite};
pub use crate::{
    snapshot_migration::SnapshotMigration,
    tool_error::{ToolError, Written},
};

/// Saves a store, which a server may be using, in a new file with mode 0600. The file is there only
/// once it is complete and was found sound.
///
/// # Errors
/// See [`ToolError`].
pub async fn backup(location: &Location, file: &Path) -> Result<Written, ToolError> {
    match location {
        Location::Sqlite(store) => sqlite::tools::backup(store, file).await,
        Location::Postgres(_) => Err(ToolError::HasOwnTools),
    }
}

/// Puts a saved store in the place of the one that is there, which is kept under another name. No
/// server may be using it.
///
/// # Errors
/// See [`ToolError`].
pub async fn restore(location: &Location, file: &Path) -> Result<Written, ToolError> {
    match location {
        Location::Sqlite(store) => sqlite::tools::restore(store, file).await,
        Location::Postgres(_) => Err(ToolError::HasOwnTools),
    }
}

/// Looks for damage in a store, which a server may be using. Changes nothing.
///
/// # Errors
/// When there is no store or it cannot be read at all.
pub async fn inspect(location: &Location) -> Result<Inspection, ToolError> {
    match location {
        Location::Sqlite(store) => sqlite::tools::inspect(store).await,
        Location::Postgres(options) => postgres::tools::inspect(options).await,
    }
}

/// Copies the snapshots in the SQLite file of another server into a store, which a server may be using,
/// in one transaction (contract: lifecycle A10). Snapshots that the store has already are skipped, so it
/// may be repeated. The file is not changed; a dry run does not change the store either, nor make one.
///
/// # Errors
/// When the file or the store cannot be read, or a row cannot be understood; then nothing was copied.
pub async fn migrate_snapshots(
    from: &Path,
    to: &Location,
    dry_run: bool,
) -> Result<SnapshotMigration, ToolError> {
    snapshot_migration::migrate(from, to, dry_run).await
}
