//! Where test servers keep their state: files, or databases of a PostgreSQL server.
//!
//! The steps of the schema cost more than many tests, so they run once for all: a new store is a copy of
//! one that is up to date. The server finds nothing to do in it. Tests of the steps themselves are
//! in `osb-store` and begin with an empty database.

use std::{
    env, fs, io,
    os::unix::{ffi::OsStrExt, process::parent_id},
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context, bail};
use osb_store::{Location, PostgresOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, postgres::PgConnectOptions};
use tokio::sync::OnceCell;
use url::Url;

/// Which database: `sqlite`, the default, or `postgresql`.
const STORE: &str = "OPENSANDBOX_TEST_STORE";
/// URL of a PostgreSQL database for tests, whose user may make others.
const DATABASE: &str = "OPENSANDBOX_TEST_POSTGRESQL";
/// Name of the run of a runner that starts a process for each test.
const RUN: &str = "NEXTEST_RUN_ID";
/// Begins the names of databases and files of tests; the id of the process that needs them follows.
const PREFIX: &str = "server_";
/// Most databases of ended processes that one test removes.
const REMOVED_MAX: usize = 3;
/// PostgreSQL 15, from which on a copy need not pass through the log.
const COPIES_FILES: u32 = 150_000;

/// What [`template_file`] returns.
static TEMPLATE_FILE: OnceCell<PathBuf> = OnceCell::const_new();
/// What [`template_database`] returns.
static TEMPLATE_DATABASE: OnceCell<String> = OnceCell::const_new();

/// Returns the store that belongs to a folder, and makes it when it is missing: a file in the folder,
/// or with `OPENSANDBOX_TEST_STORE` set to `postgresql` a database.
///
/// # Errors
/// When the variables are wrong or the store cannot be made.
pub async fn store_in(folder: &Path) -> anyhow::Result<Location> {
    let Some(database) = Database::of(folder)? else {
        let path = folder.join("store.db");
        if !path.exists() {
            fs::copy(TEMPLATE_FILE.get_or_try_init(template_file).await?, &path)?;
        }
        return Ok(Location::Sqlite(path));
    };
    database.make().await?;
    Ok(location(&database.url))
}

fn location(url: &Url) -> Location {
    Location::Postgres(PostgresOptions {
        dsn: String::from(url.clone()).into(),
        ..PostgresOptions::default()
    })
}

/// The process for whose tests a template is kept. It is that of one build, so its schema is too.
fn owner() -> u32 {
    match env::var_os(RUN) {
        Some(_) => parent_id(),
        None => process::id(),
    }
}

/// Whether the process that needed something of this name has ended.
fn is_left(name: &str) -> bool {
    let id = name
        .strip_prefix(PREFIX)
        .and_then(|it| it.split('_').next());
    let id = id.and_then(|id| id.parse::<u32>().ok());
    id.is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists())
}

/// Returns a file with the tables of a store, and makes it when it is missing.
async fn template_file() -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-stores");
    fs::create_dir_all(&folder)?;
    let run = env::var(RUN);
    let name = run.as_deref().unwrap_or_default();
    let path = folder.join(format!("{PREFIX}{}_{name}_template.db", owner()));
    // Without a runner, the file would be that of another process with this id.
    if run.is_ok() && path.exists() {
        return Ok(path);
    }
    for file in fs::read_dir(&folder)?.flatten() {
        if file.file_name().to_str().is_some_and(is_left) {
            remove(&file.path())?;
        }
    }
    let new = folder.join(format!("{PREFIX}{}_new.db", process::id()));
    let store = osb_store::open(&Location::Sqlite(new.clone())).await?;
    store.close().await;
    drop(store);
    fs::rename(&new, &path)?;
    Ok(path)
}

/// Removes a file that another test may have removed.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A database of the PostgreSQL server for tests.
#[derive(Debug)]
pub struct Database {
    /// Of the database that all tests share.
    shared: Url,
    url: Url,
    name: String,
}

impl Database {
    /// Returns the database that belongs to a folder; `None` when test servers use files.
    ///
    /// # Errors
    /// When the variables are wrong.
    pub fn of(folder: &Path) -> anyhow::Result<Option<Self>> {
        match env::var(STORE).as_deref() {
            Err(_) | Ok("sqlite") => return Ok(None),
            Ok("postgresql") => {}
            Ok(_) => bail!("{STORE} must be sqlite or postgresql"),
        }
        let shared = env::var(DATABASE).with_context(|| format!("{DATABASE} is not set"))?;
        let shared = Url::parse(&shared).with_context(|| format!("{DATABASE} is no URL"))?;
        let folder = folder.file_name().unwrap_or_default().as_bytes();
        let folder: String = folder.iter().map(|byte| format!("{byte:02x}")).collect();
        // Names of folders may come again in a later process.
        let name = format!("{PREFIX}{}_{folder}", process::id());
        Ok(Some(Self::named(name, shared)))
    }

    fn named(name: String, shared: Url) -> Self {
        let mut url = shared.clone();
        url.set_path(&name);
        Self { shared, url, name }
    }

    /// Connects as another program.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn connect(&self) -> anyhow::Result<PgConnection> {
        connect(&self.url).await
    }

    /// Makes the database, unless it exists.
    async fn make(&self) -> anyhow::Result<()> {
        let mut shared = connect(&self.shared).await?;
        if exists(&mut shared, &self.name).await? {
            return Ok(());
        }
        remove_left(&mut shared).await?;
        let template = TEMPLATE_DATABASE.get_or_try_init(|| template_database(&self.shared));
        let template = template.await?;
        let strategy = match shared.server_version_num() {
            Some(COPIES_FILES..) => "STRATEGY file_copy",
            _ => "",
        };
        let create = format!(
            "CREATE DATABASE {} TEMPLATE {template} {strategy}",
            self.name
        );
        run(&mut shared, create).await?;
        shared.close().await?;
        Ok(())
    }
}

/// Returns the name of a database with the tables of a store, and makes it when it is missing.
async fn template_database(shared: &Url) -> anyhow::Result<String> {
    let template = format!("{PREFIX}{}_template", owner());
    let mut connection = connect(shared).await?;
    // Until the connection ends.
    let lock = format!("SELECT pg_advisory_lock({})", owner());
    run(&mut connection, lock).await?;
    if !exists(&mut connection, &template).await? {
        let new = Database::named(format!("{PREFIX}{}_new", process::id()), shared.clone());
        run(&mut connection, format!("CREATE DATABASE {}", new.name)).await?;
        let store = osb_store::open(&location(&new.url)).await?;
        store.close().await;
        drop(store);
        let rename = format!("ALTER DATABASE {} RENAME TO {template}", new.name);
        run(&mut connection, rename).await?;
    }
    connection.close().await?;
    Ok(template)
}

/// Removes databases of processes that have ended.
async fn remove_left(connection: &mut PgConnection) -> anyhow::Result<()> {
    let names = format!("SELECT datname FROM pg_database WHERE starts_with(datname, '{PREFIX}')");
    let names: Vec<String> = sqlx::query_scalar(AssertSqlSafe(names))
        .fetch_all(&mut *connection)
        .await?;
    for name in names.iter().filter(|name| is_left(name)).take(REMOVED_MAX) {
        // Another test may be removing it as well.
        let _ = run(connection, format!("DROP DATABASE IF EXISTS {name}")).await;
    }
    Ok(())
}

async fn exists(connection: &mut PgConnection, name: &str) -> anyhow::Result<bool> {
    let found = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)");
    Ok(found.bind(name).fetch_one(connection).await?)
}

async fn connect(url: &Url) -> anyhow::Result<PgConnection> {
    let options: PgConnectOptions = url.as_str().parse()?;
    Ok(options.connect().await?)
}

async fn run(connection: &mut PgConnection, statement: String) -> anyhow::Result<()> {
    let statement = sqlx::raw_sql(AssertSqlSafe(statement));
    statement.execute(connection).await?;
    Ok(())
}
