//! Inspection of a PostgreSQL database.

use async_trait::async_trait;
use futures::TryStreamExt;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row};

use super::{
    hold::{answered, schema},
    usable_dsn,
};
use crate::{
    PostgresOptions, StoreError,
    inspection::{self, Answers, Dialect, Inspection, TextRow},
    tables::{Column, Table, Value, column},
    tool_error::ToolError,
};

/// The token of the server that uses the store.
const OWN_TABLES: [Table; 1] = [Table {
    name: "holder",
    row: "'the holder'",
    columns: &[
        column("only_row", Value::Number),
        column("token", Value::Uuid),
    ],
}];

const COLUMNS: &str = "SELECT CAST(tables.tablename AS TEXT), CAST(columns.attname AS TEXT)
    FROM pg_tables AS tables JOIN pg_attribute AS columns
      ON columns.attrelid = format('%I.%I', tables.schemaname, tables.tablename)::regclass
    WHERE tables.schemaname = current_schema() AND columns.attnum > 0
      AND NOT columns.attisdropped";

/// The types of columns leave few values that cannot be read.
fn is_damaged(column: &Column) -> Option<String> {
    let name = column.name;
    match column.value {
        Value::Digest => Some(format!("length({name}) <> 32")),
        // The year 10000 cannot be shown.
        Value::Moment => Some(format!(
            "NOT isfinite({name}) OR {name} >= TIMESTAMPTZ '9999-12-30 22:00:00Z'"
        )),
        Value::Text
        | Value::Readable(_)
        | Value::Number
        | Value::Boolean
        | Value::Bytes
        | Value::Uuid => None,
    }
}

#[async_trait]
impl Answers for PgConnection {
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

pub(crate) async fn inspect(options: &PostgresOptions) -> Result<Inspection, ToolError> {
    let dsn = usable_dsn(options)?;
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
        columns: COLUMNS,
        own_tables: &OWN_TABLES,
        is_damaged,
        damage: None,
    };
    let found = inspection::inspect(&dialect, &mut connection).await;
    let found = found.map_err(|error| ToolError::inspection("PostgreSQL".as_ref(), error))?;
    connection.close().await.map_err(failed)?;
    Ok(found)
}
