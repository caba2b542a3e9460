//! Inspection of a PostgreSQL database.

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row};

use super::hold::{answered, schema};
use crate::{
    PostgresOptions, StoreError,
    inspection::{self, Answers, Damage, Dialect, Inspection},
    tool_error::ToolError,
};

/// Damage that types do not rule out.
const DAMAGE: [Damage; 1] = [Damage {
    table: "create_keys",
    what: "cannot be read",
    query: "SELECT sandbox_id FROM create_keys WHERE length(key) <> 32 OR length(body) <> 32",
}];

const TABLES: &str =
    "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema()";

#[async_trait]
impl Answers for PgConnection {
    async fn rows(&mut self, query: String) -> Result<Vec<Vec<Option<String>>>, sqlx::Error> {
        let rows = sqlx::query(AssertSqlSafe(query))
            .fetch_all(&mut *self)
            .await?;
        let texts = |row: &sqlx::postgres::PgRow| -> Result<Vec<Option<String>>, sqlx::Error> {
            (0..row.len()).map(|column| row.try_get(column)).collect()
        };
        rows.iter().map(texts).collect()
    }
}

pub(crate) async fn inspect(options: &PostgresOptions) -> Result<Inspection, ToolError> {
    let dsn = options
        .parse_dsn()
        .map_err(|error| StoreError::Connect(error.into()))?;
    let connection = answered(options.connect_timeout, dsn.connect()).await;
    let mut connection = connection.map_err(|error| StoreError::Connect(error.into()))?;
    let failed = |source| ToolError::Database {
        op: "read the store",
        source,
    };
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    sqlx::query(begin)
        .execute(&mut connection)
        .await
        .map_err(failed)?;
    let dialect = Dialect {
        database: "PostgreSQL",
        newest_schema: schema().iter().map(|step| step.version).max().unwrap_or(0),
        tables: TABLES,
        damage: &DAMAGE,
    };
    let found = inspection::inspect(&dialect, &mut connection).await;
    let found = found.map_err(|error| ToolError::inspection("PostgreSQL".as_ref(), error))?;
    connection.close().await.map_err(failed)?;
    Ok(found)
}
