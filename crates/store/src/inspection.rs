//! What `store check` finds. The same questions go to every database, in SQL that all of them know.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use serde::Serialize;

use crate::tables::{Column, TABLES, Table, Value};

/// Most rows that a finding names.
const NAMED: usize = 5;
/// Where the library notes which steps of the schema were applied.
const STEPS: &str = "_sqlx_migrations";

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

/// A row whose columns are all text or null.
pub(crate) type TextRow = Vec<Option<String>>;

/// A database that answers in text.
#[async_trait]
pub(crate) trait Answers: Send {
    /// Gives each row of a query to `take` as it arrives: a table can be larger than the memory.
    async fn for_each(
        &mut self,
        query: String,
        take: &mut (dyn FnMut(TextRow) + Send),
    ) -> Result<(), sqlx::Error>;

    /// All rows of a query that has few.
    async fn rows(&mut self, query: String) -> Result<Vec<TextRow>, sqlx::Error> {
        let mut rows = Vec::new();
        self.for_each(query, &mut |row| rows.push(row)).await?;
        Ok(rows)
    }
}

/// Damaged rows: their number, and the names of the first.
#[derive(Debug, Default)]
struct Damaged {
    count: u64,
    named: Vec<String>,
}

impl Damaged {
    fn add(&mut self, name: String) {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(name);
        }
    }
}

/// What differs between databases.
pub(crate) struct Dialect {
    pub(crate) database: &'static str,
    pub(crate) newest_schema: i64,
    /// Lists each table with each of its columns.
    pub(crate) columns: &'static str,
    /// Tables that other databases do not have.
    pub(crate) own_tables: &'static [Table],
    /// A condition that is true of a damaged value that is not null; `None` when the type of the column
    /// rules it out.
    pub(crate) is_damaged: fn(&Column) -> Option<String>,
    /// Asks for damage of the database as a whole; no row is the right answer.
    pub(crate) damage: Option<&'static str>,
}

/// Asks everything.
pub(crate) async fn inspect(
    dialect: &Dialect,
    database: &mut dyn Answers,
) -> Result<Inspection, InspectionError> {
    let mut columns: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in database.rows(dialect.columns.to_owned()).await? {
        if let [Some(table), Some(column)] = row.as_slice() {
            let table = columns.entry(table.clone()).or_default();
            table.insert(column.clone());
        }
    }
    if columns.remove(STEPS).is_none() {
        return Err(InspectionError::NoStore);
    }
    let applied = format!("SELECT CAST(MAX(version) AS TEXT) FROM {STEPS} WHERE success");
    let schema = number(&database.rows(applied).await?);
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
    if let Some(damage) = dialect.damage {
        let mut damaged = Damaged::default();
        let mut add = |row: TextRow| row.into_iter().flatten().for_each(|it| damaged.add(it));
        database.for_each(damage.to_owned(), &mut add).await?;
        found.report("the whole database is corrupt", &damaged);
    }
    let known: Vec<&Table> = TABLES.iter().chain(dialect.own_tables).collect();
    if schema == newest {
        found.compare(&known, &columns);
    }
    for table in known {
        let Some(present) = columns.get(table.name) else {
            continue;
        };
        for column in table.columns.iter().filter(|it| present.contains(it.name)) {
            let damaged = damaged_rows(dialect, database, table, column).await?;
            let what = format!("{}: {} cannot be read", table.name, column.name);
            found.report(&what, &damaged);
        }
    }
    for name in columns.keys() {
        let quoted = name.replace('"', "\"\"");
        let count = format!("SELECT CAST(COUNT(*) AS TEXT) FROM \"{quoted}\"");
        let rows = number(&database.rows(count).await?);
        let rows = u64::try_from(rows).unwrap_or(0);
        found.tables.insert(name.clone(), rows);
    }
    for table in LEFT_OVER {
        if !columns.contains_key(table) || !columns.contains_key("sandbox_history") {
            continue;
        }
        let query = format!(
            "SELECT CAST(COUNT(*) AS TEXT) FROM {table} WHERE id IN (SELECT id FROM sandbox_history)"
        );
        let rows = number(&database.rows(query).await?);
        if rows > 0 {
            found.notes.push(format!(
                "{table}: {rows} rows of sandboxes that have ended; the server ignores them"
            ));
        }
    }
    Ok(found)
}

/// Counts the rows of a table whose column cannot be read, and names the first.
async fn damaged_rows(
    dialect: &Dialect,
    database: &mut dyn Answers,
    table: &Table,
    column: &Column,
) -> Result<Damaged, InspectionError> {
    let (name, row) = (column.name, table.row);
    let condition = (dialect.is_damaged)(column);
    let is_damaged = match (&condition, column.is_optional) {
        (Some(damaged), true) => format!("{name} IS NOT NULL AND ({damaged})"),
        (Some(damaged), false) => format!("{name} IS NULL OR {damaged}"),
        (None, true) => "1 = 0".to_owned(),
        (None, false) => format!("{name} IS NULL"),
    };
    let query = format!(
        "SELECT CAST({row} AS TEXT) FROM {} WHERE {is_damaged}",
        table.name
    );
    let mut damaged = Damaged::default();
    let mut add = |row: TextRow| row.into_iter().flatten().for_each(|it| damaged.add(it));
    database.for_each(query, &mut add).await?;
    let Value::Readable(is_readable) = column.value else {
        return Ok(damaged);
    };
    let sound = condition.map_or(String::new(), |damaged| format!(" AND NOT ({damaged})"));
    let query = format!(
        "SELECT CAST({row} AS TEXT), CAST({name} AS TEXT) FROM {} WHERE {name} IS NOT NULL{sound}",
        table.name
    );
    let mut add = |row: TextRow| {
        if let Ok([Some(row), Some(text)]) = <[Option<String>; 2]>::try_from(row)
            && !is_readable(&text)
        {
            damaged.add(row);
        }
    };
    database.for_each(query, &mut add).await?;
    Ok(damaged)
}

impl Inspection {
    /// Whether a server of this release can use the store, and all its rows.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// Compares the tables with those that the release knows. Both are of the same schema.
    fn compare(&mut self, known: &[&Table], present: &BTreeMap<String, BTreeSet<String>>) {
        for table in known {
            let Some(columns) = present.get(table.name) else {
                self.problems.push(format!("{}: is missing", table.name));
                continue;
            };
            let missing = table.columns.iter().filter(|it| !columns.contains(it.name));
            for column in missing {
                let problem = format!("{}: has no column {}", table.name, column.name);
                self.problems.push(problem);
            }
        }
        for (name, columns) in present {
            let Some(table) = known.iter().find(|table| table.name == name) else {
                self.notes
                    .push(format!("{name}: is not of this store and was not checked"));
                continue;
            };
            let is_known = |name: &String| table.columns.iter().any(|column| column.name == name);
            for column in columns.iter().filter(|name| !is_known(name)) {
                self.notes.push(format!(
                    "{name}: column {column} is not of this store and was not checked"
                ));
            }
        }
    }

    fn report(&mut self, what: &str, rows: &Damaged) {
        let Damaged { count, named } = rows;
        if *count == 0 {
            return;
        }
        let more = if *count > named.len() as u64 {
            ", …"
        } else {
            ""
        };
        let named = named.join(", ");
        self.problems
            .push(format!("{what} ({count}): {named}{more}"));
    }
}

/// The number in the first row; 0 without one.
fn number(rows: &[TextRow]) -> i64 {
    let first = rows.first().and_then(|row| row.first());
    let text = first.and_then(Option::as_deref);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}
