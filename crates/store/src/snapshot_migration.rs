//! Snapshots of another server: its table `snapshots` in a SQLite file (contract: lifecycle §22, A10).
//!
//! The file is only read, and may be the very file of this server's store: both kinds of tables can
//! lie in it.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use osb_protocol::{SandboxId, WireTime, lifecycle::SnapshotState};
use serde::Deserialize;
use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{Location, SnapshotRow, Store, tool_error::ToolError};

/// Columns of the table, which files of earlier releases lack in part.
const COLUMNS: &str = "SELECT name FROM pragma_table_info('snapshots')";
const ROWS: &str = "SELECT id, source_sandbox_id, namespace, name, restore_config, state, reason,
    message, last_transition_at, created_at FROM snapshots ORDER BY created_at, id";
/// The same of a file from before there were tenants.
const ROWS_WITHOUT_NAMESPACE: &str = "SELECT id, source_sandbox_id, NULL, name, restore_config,
    state, reason, message, last_transition_at, created_at FROM snapshots ORDER BY created_at, id";

type Row = (
    String,
    String,
    Option<String>,
    Option<String>,
    String,
    String,
    Option<String>,
    Option<String>,
    Option<String>,
    String,
);

/// How a sandbox is created from a snapshot.
#[derive(Deserialize)]
struct RestoreConfig {
    image: Option<String>,
}

/// What a migration of snapshots did, or would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotMigration {
    /// Snapshots of the other server.
    pub total: u64,
    /// Those that were added.
    pub migrated: u64,
    /// Those whose id the store has already.
    pub skipped: u64,
}

pub(crate) async fn migrate(
    from: &Path,
    to: &Location,
    dry_run: bool,
) -> Result<SnapshotMigration, ToolError> {
    let rows = read(from).await?;
    let total = rows.len() as u64;
    let store = match (crate::open_shared(to).await, dry_run) {
        (Ok(Some(store)), _) => Some(store),
        // A real run makes the store, or brings it up to date.
        (Ok(None), false) => Some(crate::open(to).await?),
        (Ok(None), true) => None,
        (Err(error), _) => return Err(error.into()),
    };
    let done = match store {
        Some(store) => {
            let done = add(&store, &rows, dry_run).await;
            store.close().await;
            done?
        }
        None => total,
    };
    Ok(SnapshotMigration {
        total,
        migrated: done,
        skipped: total - done,
    })
}

/// Adds the rows whose ids are free; in a dry run only counts them.
async fn add(
    store: &Arc<dyn Store>,
    rows: &[SnapshotRow],
    dry_run: bool,
) -> Result<u64, ToolError> {
    if !dry_run {
        return Ok(store.add_snapshots(rows).await?);
    }
    let ids: Vec<String> = rows.iter().map(|row| row.id.clone()).collect();
    let taken: HashMap<String, SnapshotState> = store.snapshot_states(&ids).await?;
    let free = ids.iter().filter(|id| !taken.contains_key(*id));
    Ok(free.count() as u64)
}

async fn read(file: &Path) -> Result<Vec<SnapshotRow>, ToolError> {
    if !file.is_file() {
        return Err(ToolError::NoFile(file.to_owned()));
    }
    let options = SqliteConnectOptions::new().filename(file).read_only(true);
    let opened = options.connect().await;
    let mut connection = opened.map_err(failed("open the file of the other server"))?;
    let rows = read_rows(file, &mut connection).await;
    let closed = connection.close().await;
    let rows = rows?;
    closed.map_err(failed("close the file of the other server"))?;
    rows.into_iter().map(|row| snapshot(file, row)).collect()
}

async fn read_rows(file: &Path, connection: &mut SqliteConnection) -> Result<Vec<Row>, ToolError> {
    let failed = || failed("read the snapshots of the other server");
    let columns = sqlx::query_scalar(COLUMNS).fetch_all(&mut *connection);
    let columns: HashSet<String> = columns.await.map_err(failed())?.into_iter().collect();
    if columns.is_empty() {
        return Err(unusable(file, "it has no table of snapshots".to_owned()));
    }
    let rows = match columns.contains("namespace") {
        true => ROWS,
        false => ROWS_WITHOUT_NAMESPACE,
    };
    let rows = sqlx::query_as(rows).fetch_all(connection).await;
    rows.map_err(failed())
}

/// What this store keeps of a row.
fn snapshot(file: &Path, row: Row) -> Result<SnapshotRow, ToolError> {
    let (
        id,
        sandbox_id,
        namespace,
        name,
        restore_config,
        state,
        reason,
        message,
        changed_at,
        created_at,
    ) = row;
    let bad = |column: &str| unusable(file, format!("snapshot {id}: {column} cannot be read"));
    let config: RestoreConfig =
        serde_json::from_str(&restore_config).map_err(|_| bad("restore_config"))?;
    let created_at = WireTime::parse(&created_at).map_err(|_| bad("created_at"))?;
    let changed_at = match changed_at {
        Some(time) => WireTime::parse(&time).map_err(|_| bad("last_transition_at"))?,
        None => created_at,
    };
    Ok(SnapshotRow {
        state: SnapshotState::of(&state).ok_or_else(|| bad("state"))?,
        sandbox_id: SandboxId::new(sandbox_id),
        name,
        tenant: namespace,
        owner: None,
        reason: reason.unwrap_or_default(),
        message: message.unwrap_or_default(),
        image: config.image.filter(|image| !image.is_empty()),
        size_bytes: None,
        parent_id: None,
        created_at,
        changed_at,
        id,
    })
}

fn failed(op: &'static str) -> impl FnOnce(sqlx::Error) -> ToolError {
    move |source| ToolError::Database { op, source }
}

fn unusable(file: &Path, reason: String) -> ToolError {
    ToolError::Unusable {
        path: file.to_owned(),
        reason,
    }
}
