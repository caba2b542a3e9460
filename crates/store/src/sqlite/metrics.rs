//! Table `sandbox_metrics`.

use async_trait::async_trait;
use osb_protocol::SandboxId;

use super::SqliteStore;
use crate::{MetricStretch, SandboxMetrics, StoreError, retention};

type Row = (i64, i64, i64, i64, Vec<u8>);

#[async_trait]
impl SandboxMetrics for SqliteStore {
    async fn put_metrics(&self, stretches: &[MetricStretch]) -> Result<(), StoreError> {
        const OP: &str = "write metrics";
        if stretches.is_empty() {
            return Ok(());
        }
        let mut write = self.begin(OP).await?;
        for stretch in stretches {
            sqlx::query(
                "INSERT INTO sandbox_metrics (id, step, place, start, written_at, points)
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id, step, place) DO UPDATE
                 SET start = excluded.start, written_at = excluded.written_at,
                     points = excluded.points",
            )
            .bind(stretch.id.as_str())
            .bind(i64::from(stretch.step))
            .bind(i64::from(stretch.place))
            .bind(stretch.start)
            .bind(stretch.written_at)
            .bind(&stretch.points)
            .execute(write.connection())
            .await
            .map_err(self.failed(OP))?;
        }
        self.commit(OP, write).await
    }

    async fn metrics(&self, id: &SandboxId) -> Result<Vec<MetricStretch>, StoreError> {
        let query = sqlx::query_as(
            "SELECT step, place, start, written_at, points FROM sandbox_metrics
             WHERE id = $1 ORDER BY step, start",
        )
        .bind(id.as_str());
        let rows: Vec<Row> = self.read_all("read metrics", query).await?;
        let stretch = |(step, place, start, written_at, points): Row| MetricStretch {
            id: id.clone(),
            step: u32::try_from(step).unwrap_or_default(),
            place: u32::try_from(place).unwrap_or_default(),
            start,
            written_at,
            points,
        };
        Ok(rows.into_iter().map(stretch).collect())
    }

    async fn prune_metrics(&self, before: i64, alive: &[SandboxId]) -> Result<u64, StoreError> {
        const OP: &str = "prune metrics";
        // Reads see all sandboxes, so they must not take the place of a write.
        let query = sqlx::query_as(
            "SELECT id, (SELECT ended_at / 1000000 FROM sandbox_history AS ended WHERE ended.id = kept.id), MAX(written_at), 0
             FROM sandbox_metrics AS kept GROUP BY id",
        );
        let kept = self.read_all(OP, query).await?;
        let ids = retention::outdated(kept, before, alive, u64::MAX);
        let mut deleted = 0;
        for part in retention::parts(&ids) {
            let ids = serde_json::json!(part).to_string();
            deleted += self
                .delete_in_batches(OP, || {
                    sqlx::query(
                        "DELETE FROM sandbox_metrics WHERE rowid IN (
                       SELECT rowid FROM sandbox_metrics
                       WHERE id IN (SELECT value FROM json_each($1)) LIMIT $2)",
                    )
                    .bind(ids.clone())
                })
                .await?;
        }
        Ok(deleted)
    }
}
