//! What `store check` finds. The same questions go to every database, in SQL that all of them know.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::Serialize;

/// Most rows that a finding names.
const NAMED: usize = 5;

/// Whether a text is what it should be.
type IsReadable = fn(&str) -> bool;

/// Columns with JSON and what has to be in it.
const JSON: [(&str, &str, IsReadable); 3] = [
    ("audit_entries", "details", crate::audit::is_readable),
    ("sandbox_changes", "metadata", |text| {
        serde_json::from_str::<BTreeMap<String, String>>(text).is_ok()
    }),
    ("sandbox_history", "stages", |text| {
        serde_json::from_str::<Vec<(String, i64)>>(text).is_ok()
    }),
];
/// Rows about sandboxes that have ended, which the end should have deleted.
const LEFT_OVER: [&str; 2] = ["sandbox_changes", "unanswered_creates"];

/// The state of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// Kind of database.
    pub database: &'static str,
    /// Last step of the schema that was applied.
    pub schema: i64,
    /// Last step of the schema that this release knows.
    pub newest_schema: i64,
    /// Rows of each table.
    pub tables: BTreeMap<String, u64>,
    /// What keeps a server from using the store, or some of its rows.
    pub problems: Vec<String>,
    /// What an operator should know, although a server can use the store.
    pub notes: Vec<String>,
}

/// Why a store could not be inspected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectionError {
    /// The database has no tables of a store.
    #[error("it is a database, but no store")]
    NoStore,
    /// A statement failed.
    #[error(transparent)]
    Query(#[from] sqlx::Error),
}

/// A database that answers in text.
#[async_trait]
pub(crate) trait Answers: Send {
    /// The rows of a query whose columns are all text or null.
    async fn rows(&mut self, query: String) -> Result<Vec<Vec<Option<String>>>, sqlx::Error>;
}

/// What differs between databases.
pub(crate) struct Dialect {
    pub(crate) database: &'static str,
    pub(crate) newest_schema: i64,
    /// Lists the tables.
    pub(crate) tables: &'static str,
    /// Questions to which no row is the right answer.
    pub(crate) damage: &'static [Damage],
}

/// Finds damage.
pub(crate) struct Damage {
    /// Table that the query reads.
    pub(crate) table: &'static str,
    /// What is wrong with the rows that it finds.
    pub(crate) what: &'static str,
    /// Its rows are texts that name what is damaged.
    pub(crate) query: &'static str,
}

/// Asks everything.
pub(crate) async fn inspect(
    dialect: &Dialect,
    database: &mut dyn Answers,
) -> Result<Inspection, InspectionError> {
    let mut names = Vec::new();
    for mut row in database.rows(dialect.tables.to_owned()).await? {
        names.extend(row.pop().flatten());
    }
    if !names.iter().any(|name| name == "_sqlx_migrations") {
        return Err(InspectionError::NoStore);
    }
    names.retain(|name| name != "_sqlx_migrations");
    let applied = "SELECT CAST(MAX(version) AS TEXT) FROM _sqlx_migrations WHERE success";
    let schema = number(&database.rows(applied.to_owned()).await?);
    let mut found = Inspection {
        database: dialect.database,
        schema,
        newest_schema: dialect.newest_schema,
        tables: BTreeMap::new(),
        problems: Vec::new(),
        notes: Vec::new(),
    };
    let newest = dialect.newest_schema;
    if schema > newest {
        found.problems.push(format!(
            "its schema, {schema}, is of a later release; this one knows {newest}"
        ));
    } else if schema < newest {
        found.notes.push(format!(
            "its schema, {schema}, is of an earlier release; the next start brings it to {newest}"
        ));
    }
    for Damage { table, what, query } in dialect.damage {
        if names.iter().any(|name| name == table) {
            let rows = database.rows((*query).to_owned()).await?;
            let rows: Vec<String> = rows.into_iter().flatten().flatten().collect();
            found.report(&format!("{table}: {what}"), &rows);
        }
    }
    for name in names {
        let quoted = name.replace('"', "\"\"");
        let count = format!("SELECT CAST(COUNT(*) AS TEXT) FROM \"{quoted}\"");
        let rows = number(&database.rows(count).await?);
        found.tables.insert(name, u64::try_from(rows).unwrap_or(0));
    }
    let has = |found: &Inspection, name| found.tables.contains_key(name);
    for (table, column, is_readable) in JSON {
        if !has(&found, table) {
            continue;
        }
        let query = format!(
            "SELECT CAST(id AS TEXT), CAST({column} AS TEXT) FROM {table} WHERE {column} IS NOT NULL"
        );
        let mut unreadable = Vec::new();
        for row in database.rows(query).await? {
            if let [Some(id), Some(text)] = row.as_slice()
                && !is_readable(text)
            {
                unreadable.push(id.clone());
            }
        }
        found.report(&format!("{table}: {column} cannot be read"), &unreadable);
    }
    for table in LEFT_OVER {
        if !has(&found, table) {
            continue;
        }
        let query = format!(
            "SELECT CAST(id AS TEXT) FROM {table} WHERE id IN (SELECT id FROM sandbox_history)"
        );
        let rows = database.rows(query).await?.len();
        if rows > 0 {
            found.notes.push(format!(
                "{table}: {rows} rows of sandboxes that have ended; the server ignores them"
            ));
        }
    }
    Ok(found)
}

impl Inspection {
    /// Whether a server of this release can use the store, and all its rows.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn report(&mut self, what: &str, rows: &[String]) {
        if rows.is_empty() {
            return;
        }
        let named = rows[..rows.len().min(NAMED)].join(", ");
        let more = if rows.len() > NAMED { ", …" } else { "" };
        let count = rows.len();
        self.problems
            .push(format!("{what} ({count}): {named}{more}"));
    }
}

/// The number in the first row; 0 without one.
fn number(rows: &[Vec<Option<String>>]) -> i64 {
    let first = rows.first().and_then(|row| row.first());
    let text = first.and_then(Option::as_deref);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}
