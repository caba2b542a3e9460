//! Table `sandbox_snapshots`.

use std::collections::HashMap;

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime, lifecycle::SnapshotState};
use sqlx::{FromRow, Row as _, sqlite::SqliteRow};

use super::SqliteStore;
use crate::{
    SnapshotChange, SnapshotQuery, SnapshotRow, SnapshotStore, SnapshotTotal, StoreError,
    StoredFor,
    snapshot::{IDS, read_size, read_state, stored_size, totals},
};

/// Columns of a [`Stored`] row.
macro_rules! snapshots {
    ($rest:expr) => {
        concat!(
            "SELECT id, sandbox_id, name, tenant, owner, state, reason, message, image, size_bytes,
               parent_id, created_at, changed_at
             FROM sandbox_snapshots ",
            $rest
        )
    };
}

/// What a list selects.
macro_rules! matching {
    () => {
        "WHERE ($1 IS NULL OR tenant = $1) AND ($2 IS NULL OR sandbox_id = $2)
           AND ($3 IS NULL OR name = $3)
           AND ($4 IS NULL OR state IN (SELECT value FROM json_each($4))) "
    };
}

const ONE: &str = snapshots!("WHERE id = $1");
const OPEN: &str =
    snapshots!("WHERE state IN ('Creating', 'Deleting') AND id > $1 ORDER BY id LIMIT $2");
const COUNT: &str = concat!("SELECT COUNT(*) FROM sandbox_snapshots ", matching!());
const PAGE: &str = concat!(
    snapshots!(matching!()),
    "ORDER BY created_at DESC, id DESC LIMIT $5 OFFSET $6"
);

/// A row as it is read.
struct Stored(SnapshotRow);

impl FromRow<'_, SqliteRow> for Stored {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let time = |us: i64| WireTime::from_unix_us(us).or_else(|| WireTime::from_unix_us(0));
        let time = |column: &str| -> Result<WireTime, sqlx::Error> {
            Ok(time(row.try_get(column)?).expect("0 is a valid time"))
        };
        Ok(Self(SnapshotRow {
            id: row.try_get("id")?,
            sandbox_id: SandboxId::new(row.try_get::<String, _>("sandbox_id")?),
            name: row.try_get("name")?,
            tenant: row.try_get("tenant")?,
            owner: row.try_get("owner")?,
            state: read_state(row.try_get("state")?),
            reason: row.try_get("reason")?,
            message: row.try_get("message")?,
            image: row.try_get("image")?,
            size_bytes: read_size(row.try_get("size_bytes")?),
            parent_id: row.try_get("parent_id")?,
            created_at: time("created_at")?,
            changed_at: time("changed_at")?,
        }))
    }
}

/// The wanted states as a JSON list; `None` for any.
fn states(query: &SnapshotQuery) -> Option<String> {
    (!query.states.is_empty()).then(|| serde_json::json!(query.states).to_string())
}

#[async_trait]
impl SnapshotStore for SqliteStore {
    async fn add_snapshots(&self, snapshots: &[SnapshotRow]) -> Result<u64, StoreError> {
        const OP: &str = "keep snapshots";
        let mut write = self.begin(OP).await?;
        let mut added = 0;
        for row in snapshots {
            let done = sqlx::query(
                "INSERT INTO sandbox_snapshots (id, sandbox_id, name, tenant, owner, state, reason, message,
                   image, size_bytes, parent_id, created_at, changed_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
                 ON CONFLICT (id) DO NOTHING",
            )
            .bind(&row.id)
            .bind(row.sandbox_id.as_str())
            .bind(&row.name)
            .bind(&row.tenant)
            .bind(&row.owner)
            .bind(row.state.as_str())
            .bind(&row.reason)
            .bind(&row.message)
            .bind(&row.image)
            .bind(stored_size(row.size_bytes))
            .bind(&row.parent_id)
            .bind(row.created_at.unix_us())
            .bind(row.changed_at.unix_us())
            .execute(write.connection())
            .await
            .map_err(self.failed(OP))?;
            added += done.rows_affected();
        }
        self.commit(OP, write).await?;
        Ok(added)
    }

    async fn snapshot(&self, id: &str) -> Result<Option<SnapshotRow>, StoreError> {
        let query = sqlx::query_as(ONE).bind(id);
        let row: Option<Stored> = self.read_one("read a snapshot", query).await?;
        Ok(row.map(|row| row.0))
    }

    async fn snapshots(
        &self,
        query: &SnapshotQuery,
    ) -> Result<(Vec<SnapshotRow>, u64), StoreError> {
        const OP: &str = "list snapshots";
        let states = states(query);
        let count = sqlx::query_as(COUNT)
            .bind(&query.tenant)
            .bind(&query.sandbox_id)
            .bind(&query.name)
            .bind(&states);
        let total: Option<(i64,)> = self.read_one(OP, count).await?;
        let total = total.map_or(0, |(total,)| u64::try_from(total).unwrap_or_default());
        let list = sqlx::query_as(PAGE)
            .bind(&query.tenant)
            .bind(&query.sandbox_id)
            .bind(&query.name)
            .bind(&states)
            .bind(query.limit)
            .bind(i64::try_from(query.skip).unwrap_or(i64::MAX));
        let rows: Vec<Stored> = self.read_all(OP, list).await?;
        Ok((rows.into_iter().map(|row| row.0).collect(), total))
    }

    async fn change_snapshot(
        &self,
        id: &str,
        from: SnapshotState,
        change: &SnapshotChange,
    ) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "UPDATE sandbox_snapshots SET state = $3, reason = $4, message = $5, changed_at = $6,
               image = COALESCE($7, image), size_bytes = COALESCE($8, size_bytes)
             WHERE id = $1 AND state = $2",
        )
        .bind(id)
        .bind(from.as_str())
        .bind(change.state.as_str())
        .bind(change.reason)
        .bind(&change.message)
        .bind(change.at.unix_us())
        .bind(&change.image)
        .bind(stored_size(change.size_bytes));
        let done = self.write("change a snapshot", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn remove_snapshot(&self, id: &str, from: SnapshotState) -> Result<bool, StoreError> {
        let statement = sqlx::query("DELETE FROM sandbox_snapshots WHERE id = $1 AND state = $2")
            .bind(id)
            .bind(from.as_str());
        let done = self.write("remove a snapshot", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn open_snapshots(&self, after: &str, most: u32) -> Result<Vec<SnapshotRow>, StoreError> {
        let query = sqlx::query_as(OPEN).bind(after).bind(most);
        let rows: Vec<Stored> = self.read_all("read open snapshots", query).await?;
        Ok(rows.into_iter().map(|row| row.0).collect())
    }

    async fn snapshot_states(
        &self,
        ids: &[String],
    ) -> Result<HashMap<String, SnapshotState>, StoreError> {
        let mut states = HashMap::with_capacity(ids.len());
        for ids in ids.chunks(IDS) {
            let query = sqlx::query_as(
                "SELECT id, state FROM sandbox_snapshots WHERE id IN (SELECT value FROM json_each($1))",
            )
            .bind(serde_json::json!(ids).to_string());
            let rows: Vec<(String, String)> = self.read_all("look up snapshots", query).await?;
            let rows = rows.into_iter();
            states.extend(rows.map(|(id, state)| (id, read_state(&state))));
        }
        Ok(states)
    }

    async fn snapshot_bytes(&self, of: StoredFor<'_>) -> Result<u64, StoreError> {
        let (tenant, owner) = of.columns();
        let query = sqlx::query_as(
            "SELECT COALESCE(SUM(size_bytes), 0) FROM sandbox_snapshots
             WHERE tenant = $1 OR owner = $2",
        )
        .bind(tenant)
        .bind(owner);
        let sums: Vec<(i64,)> = self.read_all("add up snapshots", query).await?;
        Ok(sums
            .first()
            .and_then(|sum| read_size(Some(sum.0)))
            .unwrap_or_default())
    }

    async fn snapshot_totals(
        &self,
        tenant: Option<&str>,
    ) -> Result<Vec<SnapshotTotal>, StoreError> {
        let query = sqlx::query_as(
            "SELECT state, COUNT(*), COALESCE(SUM(size_bytes), 0) FROM sandbox_snapshots
             WHERE $1 IS NULL OR tenant = $1 GROUP BY state ORDER BY state",
        )
        .bind(tenant);
        Ok(totals(self.read_all("count snapshots", query).await?))
    }
}
