//! Backup, restore and inspection of a SQLite file.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use futures::TryStreamExt;
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
    inspection::{self, Answers, Dialect, Inspection, TextRow},
    tables::{Column, Value},
    tool_error::{ToolError, Written},
};

/// How long a tool waits for writes of a server.
const BUSY: Duration = Duration::from_secs(10);

const COLUMNS: &str = "SELECT tables.name, columns.name
    FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
    WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";

const CORRUPTION: &str =
    "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'";

/// SQLite stores any type in any column.
fn is_damaged(column: &Column) -> Option<String> {
    let name = column.name;
    let of_type = |it: &str| format!("typeof({name}) <> '{it}'");
    Some(match column.value {
        Value::Text | Value::Readable(_) | Value::Uuid => of_type("text"),
        Value::Number => of_type("integer"),
        Value::Boolean => format!("{} OR {name} NOT IN (0, 1)", of_type("integer")),
        Value::Bytes => of_type("blob"),
        Value::Digest => format!("{} OR length({name}) <> 32", of_type("blob")),
        Value::Moment => {
            let oldest = jiff::Timestamp::MIN.as_microsecond();
            let newest = jiff::Timestamp::MAX.as_microsecond();
            let integer = of_type("integer");
            format!("{integer} OR {name} NOT BETWEEN {oldest} AND {newest}")
        }
    })
}

#[async_trait]
impl Answers for SqliteConnection {
    async fn for_each(
        &mut self,
        query: String,
        take: &mut (dyn FnMut(TextRow) + Send),
    ) -> Result<(), sqlx::Error> {
        let mut rows = sqlx::query(AssertSqlSafe(query)).fetch(&mut *self);
        while let Some(row) = rows.try_next().await? {
            let texts = (0..row.len()).map(|column| row.try_get(column));
            take(texts.collect::<Result<_, _>>()?);
        }
        Ok(())
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
        columns: COLUMNS,
        own_tables: &[],
        is_damaged,
        damage: Some(CORRUPTION),
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
                false => give_name(&self.path, target, |from, to| fs::hard_link(from, to))?,
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

/// Makes a second name of a file.
type Link = fn(&Path, &Path) -> io::Result<()>;

/// Renames a file, unless there is one by that name. A rename alone would replace it. File systems
/// such as exFAT, and shares, have no links.
fn give_name(from: &Path, to: &Path, link: Link) -> io::Result<()> {
    match link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) => {
            // Takes the name; what is replaced then is this empty file.
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).open(to)?;
            fs::rename(from, to).inspect_err(|_| {
                let _ = fs::remove_file(to);
            })
        }
    }
}

/// Keeps a file under a second name. Without links that is a copy of it.
fn keep_as(file: &Path, aside: &Path, link: Link) -> Result<(), ToolError> {
    let linked = link(file, aside);
    let Err(error) = linked else {
        return Ok(());
    };
    if error.kind() == io::ErrorKind::AlreadyExists {
        return Err(ToolError::Exists(aside.to_owned()));
    }
    let (partial, mut copy) = Partial::beside(aside)?;
    let mut original = File::open(file).map_err(failed(file, "read it"))?;
    io::copy(&mut original, &mut copy).map_err(failed(aside, "keep the old store"))?;
    partial.put(aside, false).map(drop)
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
    let held = DatabaseFile::take(store).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => ToolError::InUse(store.to_owned()),
        _ => ToolError::Store(StoreError::Open {
            path: store.display().to_string(),
            source: error.into(),
        }),
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
    forget_unanswered(&partial.path).await?;
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

/// Deletes the marks of creates that were under way during the backup. Most were answered after it,
/// and a server would remove their sandboxes as if a crash had left them.
async fn forget_unanswered(copy: &Path) -> Result<(), ToolError> {
    let mut connection = open(copy).await?;
    let statement = "DELETE FROM unanswered_creates";
    run(&mut connection, "forget unanswered creates", statement).await?;
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
        keep_as(store, &aside, |from, to| fs::hard_link(from, to))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As exFAT answers.
    fn no_links(_: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    #[test]
    fn without_links_a_file_gets_a_name_that_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| folder.path().join(name);
        fs::write(name("made"), "new").unwrap();
        fs::write(name("taken"), "old").unwrap();
        let taken = give_name(&name("made"), &name("taken"), no_links).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(name("taken")).unwrap(), "old");
        give_name(&name("made"), &name("free"), no_links).unwrap();
        assert_eq!(fs::read_to_string(name("free")).unwrap(), "new");
        give_name(&name("made"), &name("other"), no_links).unwrap_err();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn without_links_the_replaced_store_is_copied() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| folder.path().join(name);
        fs::write(name("store"), "old").unwrap();
        keep_as(&name("store"), &name("aside"), no_links).unwrap();
        fs::write(name("store"), "new").unwrap();
        assert_eq!(fs::read_to_string(name("aside")).unwrap(), "old");
        let again = keep_as(&name("store"), &name("aside"), no_links).unwrap_err();
        assert!(matches!(again, ToolError::Exists(_)), "{again}");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}
