//! Table `sandbox_metrics`.

use async_trait::async_trait;
use osb_protocol::SandboxId;

use super::SqliteStore;
use crate::{MetricStretch, SandboxMetrics, StoreError};

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

    async fn prune_metrics(&self, before: i64) -> Result<u64, StoreError> {
        self.delete_in_batches("prune metrics", || {
            sqlx::query(
                "DELETE FROM sandbox_metrics WHERE rowid IN (
                   SELECT rowid FROM sandbox_metrics WHERE id IN (
                     SELECT id FROM sandbox_metrics GROUP BY id HAVING MAX(written_at) < $1)
                   LIMIT $2)",
            )
            .bind(before)
        })
        .await
    }
}
