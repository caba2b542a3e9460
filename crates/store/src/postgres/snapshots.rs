//! Table `sandbox_snapshots`.

use std::{borrow::Cow, collections::HashMap};

use async_trait::async_trait;
use osb_protocol::{SandboxId, lifecycle::SnapshotState};
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::{
    PostgresStore,
    values::{Moment, text},
};
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
        "WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR sandbox_id = $2)
           AND ($3::text IS NULL OR name = $3) AND ($4::text[] IS NULL OR state = ANY($4)) "
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

impl FromRow<'_, PgRow> for Stored {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self(SnapshotRow {
            id: row.try_get("id")?,
            sandbox_id: SandboxId::new(row.try_get::<String, _>("sandbox_id")?),
            name: row.try_get("name")?,
            tenant: row.try_get("tenant")?,
            owner: row.try_get("owner")?,
            state: read_state(&row.try_get::<String, _>("state")?),
            reason: row.try_get("reason")?,
            message: row.try_get("message")?,
            image: row.try_get("image")?,
            size_bytes: read_size(row.try_get("size_bytes")?),
            parent_id: row.try_get("parent_id")?,
            created_at: row.try_get::<Moment, _>("created_at")?.0,
            changed_at: row.try_get::<Moment, _>("changed_at")?.0,
        }))
    }
}

/// The parameters of [`matching`].
struct Filter<'a> {
    tenant: Option<Cow<'a, str>>,
    sandbox_id: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    states: Option<Vec<Cow<'a, str>>>,
}

impl<'a> Filter<'a> {
    fn of(query: &'a SnapshotQuery) -> Self {
        let states = query.states.iter().map(|state| text(state));
        Self {
            tenant: query.tenant.as_deref().map(text),
            sandbox_id: query.sandbox_id.as_deref().map(text),
            name: query.name.as_deref().map(text),
            states: (!query.states.is_empty()).then(|| states.collect()),
        }
    }
}

#[async_trait]
impl SnapshotStore for PostgresStore {
    async fn add_snapshots(&self, snapshots: &[SnapshotRow]) -> Result<u64, StoreError> {
        const OP: &str = "keep snapshots";
        let mut write = self.begin(OP).await?;
        let mut added = 0;
        for row in snapshots {
            let insert = sqlx::query(
                "INSERT INTO sandbox_snapshots (id, sandbox_id, name, tenant, owner, state, reason, message,
                   image, size_bytes, parent_id, created_at, changed_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
                 ON CONFLICT (id) DO NOTHING",
            )
            .bind(text(&row.id))
            .bind(text(row.sandbox_id.as_str()))
            .bind(row.name.as_deref().map(text))
            .bind(row.tenant.as_deref().map(text))
            .bind(row.owner.as_deref().map(text))
            .bind(row.state.as_str())
            .bind(text(&row.reason))
            .bind(text(&row.message))
            .bind(row.image.as_deref().map(text))
            .bind(stored_size(row.size_bytes))
            .bind(row.parent_id.as_deref().map(text))
            .bind(Moment(row.created_at))
            .bind(Moment(row.changed_at));
            let done = self.run(OP, insert.execute(write.connection())).await?;
            added += done.rows_affected();
        }
        self.commit(OP, write).await?;
        Ok(added)
    }

    async fn snapshot(&self, id: &str) -> Result<Option<SnapshotRow>, StoreError> {
        let query = sqlx::query_as(ONE).bind(text(id));
        let row: Option<Stored> = self.read_one("read a snapshot", query).await?;
        Ok(row.map(|row| row.0))
    }

    async fn snapshots(
        &self,
        query: &SnapshotQuery,
    ) -> Result<(Vec<SnapshotRow>, u64), StoreError> {
        const OP: &str = "list snapshots";
        let filter = Filter::of(query);
        let count = sqlx::query_as(COUNT)
            .bind(filter.tenant.clone())
            .bind(filter.sandbox_id.clone())
            .bind(filter.name.clone())
            .bind(filter.states.clone());
        let total: Option<(i64,)> = self.read_one(OP, count).await?;
        let total = total.map_or(0, |(total,)| u64::try_from(total).unwrap_or_default());
        let list = sqlx::query_as(PAGE)
            .bind(filter.tenant)
            .bind(filter.sandbox_id)
            .bind(filter.name)
            .bind(filter.states)
            .bind(i64::from(query.limit))
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
        .bind(text(id))
        .bind(from.as_str())
        .bind(change.state.as_str())
        .bind(change.reason)
        .bind(text(&change.message))
        .bind(Moment(change.at))
        .bind(change.image.as_deref().map(text))
        .bind(stored_size(change.size_bytes));
        let done = self.write("change a snapshot", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn remove_snapshot(&self, id: &str, from: SnapshotState) -> Result<bool, StoreError> {
        let statement = sqlx::query("DELETE FROM sandbox_snapshots WHERE id = $1 AND state = $2")
            .bind(text(id))
            .bind(from.as_str());
        let done = self.write("remove a snapshot", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn open_snapshots(&self, after: &str, most: u32) -> Result<Vec<SnapshotRow>, StoreError> {
        let query = sqlx::query_as(OPEN).bind(text(after)).bind(i64::from(most));
        let rows: Vec<Stored> = self.read_all("read open snapshots", query).await?;
        Ok(rows.into_iter().map(|row| row.0).collect())
    }

    async fn snapshot_states(
        &self,
        ids: &[String],
    ) -> Result<HashMap<String, SnapshotState>, StoreError> {
        let mut states = HashMap::with_capacity(ids.len());
        for ids in ids.chunks(IDS) {
            let ids: Vec<_> = ids.iter().map(|id| text(id)).collect();
            let query =
                sqlx::query_as("SELECT id, state FROM sandbox_snapshots WHERE id = ANY($1)")
                    .bind(ids);
            let rows: Vec<(String, String)> = self.read_all("look up snapshots", query).await?;
            let rows = rows.into_iter();
            states.extend(rows.map(|(id, state)| (id, read_state(&state))));
        }
        Ok(states)
    }

    async fn snapshot_bytes(&self, of: StoredFor<'_>) -> Result<u64, StoreError> {
        let (tenant, owner) = of.columns();
        let query = sqlx::query_as(
            "SELECT CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM sandbox_snapshots
             WHERE tenant = $1 OR owner = $2",
        )
        .bind(tenant.map(text))
        .bind(owner.map(text));
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
            "SELECT state, COUNT(*), CAST(COALESCE(SUM(size_bytes), 0) AS BIGINT) FROM sandbox_snapshots
             WHERE $1::text IS NULL OR tenant = $1 GROUP BY state ORDER BY state",
        )
        .bind(tenant.map(text));
        Ok(totals(self.read_all("count snapshots", query).await?))
    }
}
