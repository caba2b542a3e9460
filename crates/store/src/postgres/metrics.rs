//! Table `sandbox_metrics`.

use async_trait::async_trait;
use osb_protocol::SandboxId;

use super::{PostgresStore, values::text};
use crate::{MetricStretch, SandboxMetrics, StoreError, retention};

type Row = (i32, i32, i64, i64, Vec<u8>);

#[async_trait]
impl SandboxMetrics for PostgresStore {
    async fn put_metrics(&self, stretches: &[MetricStretch]) -> Result<(), StoreError> {
        if stretches.is_empty() {
            return Ok(());
        }
        let column = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        let ids: Vec<String> = stretches
            .iter()
            .map(|it| text(it.id.as_str()).into())
            .collect();
        let steps: Vec<i32> = stretches.iter().map(|it| column(it.step)).collect();
        let places: Vec<i32> = stretches.iter().map(|it| column(it.place)).collect();
        let starts: Vec<i64> = stretches.iter().map(|it| it.start).collect();
        let times: Vec<i64> = stretches.iter().map(|it| it.written_at).collect();
        let points: Vec<&[u8]> = stretches.iter().map(|it| it.points.as_slice()).collect();
        // One statement: each has a way of its own to the database and back.
        let statement = sqlx::query(
            "INSERT INTO sandbox_metrics (id, step, place, start, written_at, points)
             SELECT * FROM UNNEST($1::text[], $2::int[], $3::int[], $4::bigint[], $5::bigint[],
                                  $6::bytea[])
             ON CONFLICT (id, step, place) DO UPDATE
             SET start = excluded.start, written_at = excluded.written_at,
                 points = excluded.points",
        )
        .bind(ids)
        .bind(steps)
        .bind(places)
        .bind(starts)
        .bind(times)
        .bind(points);
        self.write("write metrics", statement).await.map(drop)
    }

    async fn metrics(&self, id: &SandboxId) -> Result<Vec<MetricStretch>, StoreError> {
        let query = sqlx::query_as(
            "SELECT step, place, start, written_at, points FROM sandbox_metrics
             WHERE id = $1 ORDER BY step, start",
        )
        .bind(text(id.as_str()));
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
            "SELECT id, (SELECT EXTRACT(EPOCH FROM ended_at)::bigint FROM sandbox_history AS ended
                WHERE ended.id = kept.id), MAX(written_at), 0::bigint
             FROM sandbox_metrics AS kept GROUP BY id",
        );
        let kept = self.read_all(OP, query).await?;
        let ids = retention::outdated(kept, before, alive, u64::MAX);
        let mut deleted = 0;
        for part in retention::parts(&ids) {
            let ids = part.to_vec();
            deleted += self
                .delete_in_batches(OP, || {
                    sqlx::query(
                        "DELETE FROM sandbox_metrics WHERE ctid = ANY(ARRAY(
                       SELECT ctid FROM sandbox_metrics WHERE id = ANY($1) LIMIT $2))",
                    )
                    .bind(ids.clone())
                })
                .await?;
        }
        Ok(deleted)
    }
}
