//! Table `sandbox_history`.

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};
use sqlx::types::Json;

use super::{
    PostgresStore,
    values::{Moment, text},
};
use crate::{HistoryEntry, Outcome, SandboxHistory, StageTime, StoreError, ended_spec};

pub(super) type Row = (
    String,
    String,
    Moment,
    Moment,
    String,
    String,
    String,
    String,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<Moment>,
);

/// A query of the rows that these conditions select, in this order.
macro_rules! history {
    ($conditions:literal) => {
        concat!(
            "SELECT id, image, created_at, ended_at, outcome, reason, message, stages::text, tenant,
               metadata, entrypoint, resources, expires_at
             FROM sandbox_history ",
            $conditions
        )
    };
}
pub(super) use history;

const EPOCH: &str = "0 is a valid time";

#[async_trait]
impl SandboxHistory for PostgresStore {
    async fn finish(&self, entry: &HistoryEntry) -> Result<(), StoreError> {
        const OP: &str = "write the history";
        let stages: Vec<(&str, i64)> = entry
            .stages
            .iter()
            .map(|stage| (stage.stage.as_str(), stage.at.unix_us()))
            .collect();
        let [metadata, entrypoint, resources] = ended_spec::encode(&entry.spec)?;
        let mut write = self.begin(OP).await?;
        let insert = sqlx::query(
            "INSERT INTO sandbox_history
               (id, image, created_at, ended_at, outcome, reason, message, stages, tenant,
                metadata, entrypoint, resources, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
             ON CONFLICT (id) DO NOTHING",
        )
        .bind(text(entry.id.as_str()))
        .bind(text(&entry.image))
        .bind(Moment(entry.created_at))
        .bind(Moment(entry.ended_at))
        .bind(entry.outcome.as_str())
        .bind(text(&entry.reason))
        .bind(text(&entry.message))
        .bind(Json(stages))
        .bind(entry.tenant.as_deref().map(text))
        .bind(metadata)
        .bind(entrypoint)
        .bind(resources)
        .bind(entry.spec.expires_at.map(Moment));
        let inserted = self.run(OP, insert.execute(write.connection())).await?;
        if inserted.rows_affected() > 0 {
            let unannounced = sqlx::query(
                "INSERT INTO webhook_ends (id)
                 SELECT CAST($1 AS TEXT) WHERE EXISTS (SELECT 1 FROM webhook_tracking)
                 ON CONFLICT (id) DO NOTHING",
            )
            .bind(text(entry.id.as_str()));
            self.run(OP, unannounced.execute(write.connection()))
                .await?;
        }
        for forget in [
            "DELETE FROM unanswered_creates WHERE id = $1",
            "DELETE FROM sandbox_changes WHERE id = $1",
            "DELETE FROM imported_files WHERE id = $1",
            "DELETE FROM sandbox_pool_members WHERE id = $1",
        ] {
            let forget = sqlx::query(forget).bind(text(entry.id.as_str()));
            self.run(OP, forget.execute(write.connection())).await?;
        }
        self.commit(OP, write).await
    }

    async fn history(&self, id: &SandboxId) -> Result<Option<HistoryEntry>, StoreError> {
        let query = sqlx::query_as(history!("WHERE id = $1")).bind(text(id.as_str()));
        let row: Option<Row> = self.read_one("read the history", query).await?;
        row.map(entry).transpose()
    }

    async fn recent_history(
        &self,
        tenant: Option<&str>,
        skip: u32,
        limit: u32,
    ) -> Result<Vec<HistoryEntry>, StoreError> {
        let query = match tenant {
            None => sqlx::query_as(history!("ORDER BY ended_at DESC, id LIMIT $1 OFFSET $2"))
                .bind(i64::from(limit))
                .bind(i64::from(skip)),
            Some(tenant) => sqlx::query_as(history!(
                "WHERE tenant = $3 ORDER BY ended_at DESC, id LIMIT $1 OFFSET $2"
            ))
            .bind(i64::from(limit))
            .bind(i64::from(skip))
            .bind(text(tenant)),
        };
        let rows: Vec<Row> = self.read_all("read the history", query).await?;
        rows.into_iter().map(entry).collect()
    }

    async fn image_uses(&self) -> Result<Vec<(String, WireTime)>, StoreError> {
        let query = sqlx::query_as(
            "SELECT image, MAX(ended_at) FROM sandbox_history WHERE image <> '' GROUP BY image
             ORDER BY image",
        );
        let rows: Vec<(String, Moment)> =
            self.read_all("read when images were used", query).await?;
        let uses = rows.into_iter().map(|(image, Moment(at))| (image, at));
        Ok(uses.collect())
    }

    async fn count_history(&self, tenant: Option<&str>, most: u32) -> Result<u32, StoreError> {
        let query = match tenant {
            None => sqlx::query_as(
                "SELECT COUNT(*) FROM (SELECT 1 FROM sandbox_history LIMIT $1) AS counted",
            )
            .bind(i64::from(most)),
            Some(tenant) => sqlx::query_as(
                "SELECT COUNT(*) FROM (
                   SELECT 1 FROM sandbox_history WHERE tenant = $2 LIMIT $1) AS counted",
            )
            .bind(i64::from(most))
            .bind(text(tenant)),
        };
        let count: Option<(i64,)> = self.read_one("count the history", query).await?;
        Ok(count.map_or(0, |(count,)| u32::try_from(count).unwrap_or(most)))
    }

    async fn prune_history(&self, before: WireTime) -> Result<u64, StoreError> {
        self.delete_in_batches("prune the history", || {
            sqlx::query(
                "DELETE FROM sandbox_history WHERE ctid = ANY(ARRAY(
                   SELECT ctid FROM sandbox_history WHERE ended_at < $1 LIMIT $2))",
            )
            .bind(Moment(before))
        })
        .await
    }
}

pub(super) fn entry(row: Row) -> Result<HistoryEntry, StoreError> {
    let (
        id,
        image,
        Moment(created_at),
        Moment(ended_at),
        outcome,
        reason,
        message,
        stages,
        tenant,
        metadata,
        entrypoint,
        resources,
        expires_at,
    ) = row;
    let stages: Vec<(String, i64)> =
        serde_json::from_str(&stages).map_err(|source| StoreError::Damaged {
            what: "stage times",
            source,
        })?;
    let time = |us| {
        WireTime::from_unix_us(us)
            .or_else(|| WireTime::from_unix_us(0))
            .expect(EPOCH)
    };
    Ok(HistoryEntry {
        id: SandboxId::new(id),
        image,
        created_at,
        ended_at,
        outcome: Outcome::from_stored(&outcome),
        reason,
        message,
        stages: stages
            .into_iter()
            .map(|(stage, at)| StageTime {
                stage,
                at: time(at),
            })
            .collect(),
        tenant,
        spec: ended_spec::decode(
            [metadata, entrypoint, resources],
            expires_at.map(|Moment(at)| at),
        )?,
    })
}
