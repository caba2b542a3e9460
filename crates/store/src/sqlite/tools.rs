//! Backup, restore and inspection of a SQLite file.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions,
};
use uuid::Uuid;

use super::{
    database_file::{BESIDE, DatabaseFile, wide_permissions, with_suffix},
    schema,
};
use crate::{
    StoreError,
    inspection::{self, Answers, Damage, Dialect, Inspection},
    tool_error::{ToolError, Written},
};

/// How long a tool waits for writes of a server.
const BUSY: Duration = Duration::from_secs(10);

/// Damage that only SQLite can have: it stores any type in any column.
const DAMAGE: [Damage; 6] = [
    Damage {
        table: "instance",
        what: "the whole database is corrupt",
        query: "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
    },
    Damage {
        table: "sandbox_changes",
        what: "a time is no number",
        query: "SELECT CAST(id AS TEXT) FROM sandbox_changes
                WHERE typeof(expires_at) NOT IN ('integer', 'null')
                   OR typeof(deleted_at) NOT IN ('integer', 'null')",
    },
    Damage {
        table: "sandbox_history",
        what: "a time is no number",
        query: "SELECT CAST(id AS TEXT) FROM sandbox_history
                WHERE typeof(created_at) <> 'integer' OR typeof(ended_at) <> 'integer'",
    },
    Damage {
        table: "sessions",
        what: "cannot be read",
        // An id of a session would let its reader in.
        query: "SELECT 'a session' FROM sessions
                WHERE typeof(expires_at) <> 'integer' OR typeof(data) <> 'blob'",
    },
    Damage {
        table: "audit_entries",
        what: "a time is no number",
        query: "SELECT CAST(id AS TEXT) FROM audit_entries WHERE typeof(at) <> 'integer'",
    },
    Damage {
        table: "create_keys",
        what: "cannot be read",
        query: "SELECT CAST(sandbox_id AS TEXT) FROM create_keys
                WHERE length(key) <> 32 OR length(body) <> 32 OR typeof(used_at) <> 'integer'",
    },
];

const TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";

#[async_trait]
impl Answers for SqliteConnection {
    async fn rows(&mut self, query: String) -> Result<Vec<Vec<Option<String>>>, sqlx::Error> {
        let rows = sqlx::query(AssertSqlSafe(query))
            .fetch_all(&mut *self)
            .await?;
        let texts = |row: &sqlx::sqlite::SqliteRow| -> Result<Vec<Option<String>>, sqlx::Error> {
            (0..row.len()).map(|column| row.try_get(column)).collect()
        };
        rows.iter().map(texts).collect()
    }
}

async fn open(file: &Path) -> Result<SqliteConnection, ToolError> {
    if !file.is_file() {
        return Err(ToolError::NoStore(file.to_owned()));
    }
    let options = SqliteConnectOptions::new()
        .filename(file)
        .busy_timeout(BUSY);
    let opened = options.connect().await;
    opened.map_err(|source| ToolError::Database {
        op: "open the store",
        source,
    })
}

async fn close(connection: SqliteConnection) -> Result<(), ToolError> {
    let closed = connection.close().await;
    closed.map_err(|source| ToolError::Database {
        op: "close the store",
        source,
    })
}

async fn run(
    connection: &mut SqliteConnection,
    op: &'static str,
    statement: &'static str,
) -> Result<(), ToolError> {
    let done = sqlx::query(statement).execute(connection).await;
    done.map(drop)
        .map_err(|source| ToolError::Database { op, source })
}

pub(crate) async fn inspect(store: &Path) -> Result<Inspection, ToolError> {
    let mut connection = open(store).await?;
    // One view of everything, also while a server writes.
    run(&mut connection, "read the store", "BEGIN").await?;
    let newest_schema = schema().iter().map(|step| step.version).max().unwrap_or(0);
    let dialect = Dialect {
        database: "SQLite",
        newest_schema,
        tables: TABLES,
        damage: &DAMAGE,
    };
    let found = inspection::inspect(&dialect, &mut connection).await;
    let mut found = found.map_err(|error| ToolError::inspection(store, error))?;
    run(&mut connection, "read the store", "COMMIT").await?;
    close(connection).await?;
    found.notes.extend(wide_permissions(store));
    Ok(found)
}

/// A file that is not there yet: it is removed again unless it is complete.
struct Partial {
    path: PathBuf,
    is_done: bool,
}

impl Partial {
    /// Makes an empty file for the target, beside it and without access for others.
    fn beside(target: &Path) -> Result<(Self, File), ToolError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let name = format!(".{name}.{}", Uuid::new_v4().simple());
        let path = target.with_file_name(name);
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&path);
        let file = opened.map_err(failed(target, "write beside it"))?;
        let partial = Self {
            path,
            is_done: false,
        };
        Ok((partial, file))
    }

    /// Gives the file its name, once its bytes are on the disk.
    fn put(mut self, target: &Path, replaces: bool) -> Result<u64, ToolError> {
        let put = || -> io::Result<u64> {
            let file = File::open(&self.path)?;
            file.sync_all()?;
            match replaces {
                true => fs::rename(&self.path, target)?,
                // Unlike a rename it fails when there is a file by that name.
                false => {
                    fs::hard_link(&self.path, target)?;
                    fs::remove_file(&self.path)?;
                }
            }
            sync_folder(target)?;
            Ok(file.metadata()?.len())
        };
        let length = put().map_err(|source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => ToolError::Exists(target.to_owned()),
            _ => failed(target, "write it")(source),
        })?;
        self.is_done = true;
        Ok(length)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = fs::remove_file(&self.path);
            for suffix in BESIDE {
                let _ = fs::remove_file(with_suffix(&self.path, suffix));
            }
        }
    }
}

fn failed(path: &Path, op: &'static str) -> impl FnOnce(io::Error) -> ToolError {
    move |source| ToolError::File {
        path: path.to_owned(),
        op,
        source,
    }
}

fn sync_folder(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Whether a file is a store that this release can use, and nothing in it is damaged.
async fn require_sound(file: &Path) -> Result<(), ToolError> {
    let found = inspect(file).await?;
    match found.is_sound() {
        true => Ok(()),
        false => Err(ToolError::Unusable {
            path: file.to_owned(),
            reason: found.problems.join("; "),
        }),
    }
}

pub(crate) async fn backup(store: &Path, target: &Path) -> Result<Written, ToolError> {
    if target.exists() {
        return Err(ToolError::Exists(target.to_owned()));
    }
    let mut connection = open(store).await?;
    let (partial, _) = Partial::beside(target)?;
    // One transaction, also while a server writes. It accepts a file that exists if it is empty.
    let copied = sqlx::query("VACUUM INTO $1")
        .bind(partial.path.to_string_lossy().into_owned())
        .execute(&mut connection)
        .await;
    copied.map_err(|source| ToolError::Database {
        op: "copy the store",
        source,
    })?;
    close(connection).await?;
    // A copy of a damaged store would only be noticed when it is needed.
    require_sound(&partial.path).await?;
    Ok(Written {
        path: target.to_owned(),
        bytes: partial.put(target, false)?,
        replaced: None,
    })
}

pub(crate) async fn restore(store: &Path, source: &Path) -> Result<Written, ToolError> {
    require_sound(source).await?;
    let is_new = !store.exists();
    let held = DatabaseFile::take(store).map_err(|error| StoreError::Open {
        path: store.display().to_string(),
        source: error.into(),
    })?;
    // Links lead to it: it is replaced where it is.
    let store = held.canonical();
    if source.canonicalize().is_ok_and(|source| source == store) {
        return Err(ToolError::Unusable {
            path: source.to_owned(),
            reason: "it is the store itself".to_owned(),
        });
    }
    let (partial, _) = Partial::beside(store)?;
    copy_database(source, &partial.path).await?;
    require_sound(&partial.path).await?;
    let replaced = set_aside(store, is_new).await?;
    // The next server waits for the lock that is held here.
    Ok(Written {
        path: store.to_owned(),
        bytes: partial.put(store, true)?,
        replaced,
    })
}

/// Copies a database with what is in its write-ahead log.
async fn copy_database(from: &Path, to: &Path) -> Result<(), ToolError> {
    let mut connection = open(from).await?;
    let copied = sqlx::query("VACUUM INTO $1")
        .bind(to.to_string_lossy().into_owned())
        .execute(&mut connection)
        .await;
    copied.map_err(|source| ToolError::Database {
        op: "copy the saved store",
        source,
    })?;
    close(connection).await
}

/// Gives the store that is there a second name, and moves the files beside it away: a new database
/// must not get the log of another. The store keeps its own name until the new one takes it, so that
/// a crash in between leaves a store.
async fn set_aside(store: &Path, is_new: bool) -> Result<Option<PathBuf>, ToolError> {
    // What is in the write-ahead log belongs into the file. A store that is too damaged for that is
    // set aside with its log.
    if !is_new && let Ok(mut connection) = open(store).await {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let _ = run(&mut connection, "empty the write-ahead log", checkpoint).await;
        let _ = close(connection).await;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    let aside = with_suffix(store, &format!(".replaced-{seconds}"));
    if !is_new {
        fs::hard_link(store, &aside).map_err(failed(&aside, "keep the old store"))?;
    }
    for suffix in BESIDE {
        let (from, to) = (with_suffix(store, suffix), with_suffix(&aside, suffix));
        match fs::rename(&from, &to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed(&to, "keep the old store")(error));
            }
            _ => {}
        }
    }
    Ok((!is_new).then_some(aside))
}
