//! Where test servers keep their state: files, or a PostgreSQL database.

use std::{os::unix::ffi::OsStrExt, path::Path};

use anyhow::{Context, bail};
use osb_store::{Location, PostgresOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, postgres::PgConnectOptions};
use url::Url;

/// Which database: `sqlite`, the default, or `postgresql`.
const STORE: &str = "OPENSANDBOX_TEST_STORE";
/// URL of a PostgreSQL database for tests.
const DATABASE: &str = "OPENSANDBOX_TEST_POSTGRESQL";

/// Returns the store that belongs to a folder: a file in it, or with `OPENSANDBOX_TEST_STORE` set to
/// `postgresql` a schema that is made when missing.
///
/// # Errors
/// When the variables are wrong or the schema cannot be made.
pub async fn store_in(folder: &Path) -> anyhow::Result<Location> {
    let Some(schema) = Schema::of(folder)? else {
        return Ok(Location::Sqlite(folder.join("store.db")));
    };
    let create = format!("CREATE SCHEMA IF NOT EXISTS {}", schema.name);
    sqlx::raw_sql(AssertSqlSafe(create))
        .execute(&mut schema.connect().await?)
        .await?;
    let mut dsn = schema.database;
    dsn.query_pairs_mut()
        .append_pair("options", &format!("-c search_path={}", schema.name));
    Ok(Location::Postgres(PostgresOptions {
        dsn: String::from(dsn).into(),
        ..PostgresOptions::default()
    }))
}

/// A schema of the PostgreSQL database for tests.
#[derive(Debug)]
pub struct Schema {
    database: Url,
    name: String,
}

impl Schema {
    /// Returns the schema that belongs to a folder; `None` when test servers use files.
    ///
    /// # Errors
    /// When the variables are wrong.
    pub fn of(folder: &Path) -> anyhow::Result<Option<Self>> {
        match std::env::var(STORE).as_deref() {
            Err(_) | Ok("sqlite") => return Ok(None),
            Ok("postgresql") => {}
            Ok(_) => bail!("{STORE} must be sqlite or postgresql"),
        }
        let database = std::env::var(DATABASE).with_context(|| format!("{DATABASE} is not set"))?;
        let folder = folder.file_name().unwrap_or_default().as_bytes();
        let folder: String = folder.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Some(Self {
            database: Url::parse(&database).with_context(|| format!("{DATABASE} is no URL"))?,
            // Names of folders may come again in a later process.
            name: format!("server_{}_{folder}", std::process::id()),
        }))
    }

    /// Name of the schema.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Connects as another program.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn connect(&self) -> anyhow::Result<PgConnection> {
        let options: PgConnectOptions = self.database.as_str().parse()?;
        Ok(options.connect().await?)
    }
}
