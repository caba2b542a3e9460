//! Tables `webhooks`, `webhook_tracking`, `webhook_announced`, `webhook_ends` and
//! `webhook_deliveries`.

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};
use sqlx::{Sqlite, query::Query, sqlite::SqliteArguments};

use super::{SqliteStore, Write, history};
use crate::{
    AnnouncedRow, Announcement, Announcements, AttemptResult, Deliveries, DeliveryBacklog,
    DeliveryRow, DeliveryStatus, HistoryEntry, StoreError, WebhookRow, WebhookSecret, Webhooks,
    webhook::{stored_events, stored_metadata, to_json},
};

type Webhook = (
    String,
    String,
    String,
    Option<String>,
    String,
    Option<String>,
    bool,
    Option<String>,
    i64,
);
type Announced = (String, String, String, Option<i64>, Option<String>, String);
type Delivery = (
    i64,
    String,
    String,
    String,
    Option<String>,
    String,
    String,
    i64,
    i64,
    i64,
    Option<i64>,
    Option<i64>,
    Option<String>,
);

/// Columns of a [`Delivery`].
macro_rules! deliveries {
    ($rest:literal) => {
        concat!(
            "SELECT seq, webhook_id, event_id, event_type, sandbox_id, body, status, attempts,
               created_at, due_at, ended_at, answer, error
             FROM webhook_deliveries ",
            $rest
        )
    };
}

const NEXT: &str =
    deliveries!("WHERE webhook_id = $1 AND status = 'pending' ORDER BY due_at, seq LIMIT 1");
const PENDING: &str = "SELECT webhook_id, COUNT(*) FROM webhook_deliveries
   WHERE status = 'pending' GROUP BY webhook_id";
const GIVE_UP: &str = "UPDATE webhook_deliveries SET status = 'dead', error = $2, ended_at = $3
   WHERE seq IN (SELECT seq FROM webhook_deliveries
                 WHERE webhook_id = $1 AND status = 'pending' LIMIT $4)";
/// A page of a subscription's deliveries.
const PAGE: &str = deliveries!("WHERE webhook_id = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3");
/// The same of one status, which may be rare: the plus keeps the database from looking for it among all
/// deliveries of the subscription.
const PAGE_OF_STATUS: &str = deliveries!(
    "WHERE seq IN (SELECT seq FROM webhook_deliveries
       WHERE webhook_id = $1 AND status = $4 AND +seq < $2 ORDER BY +seq DESC LIMIT $3)
     ORDER BY seq DESC"
);
const BACKLOG: &str = "SELECT
     (SELECT COUNT(*) FROM webhook_deliveries WHERE status = 'dead'), COUNT(*), MIN(created_at)
   FROM webhook_deliveries WHERE status = 'pending'";
const PRUNE_ENDED: &str = "DELETE FROM webhook_deliveries WHERE seq IN (
     SELECT seq FROM webhook_deliveries WHERE status = $1 AND ended_at < $2 LIMIT $3)";
/// Steps through the subscriptions that have deliveries, without a look at each delivery.
const PRUNE_ORPHANS: &str = "DELETE FROM webhook_deliveries WHERE seq IN (
     SELECT seq FROM webhook_deliveries WHERE webhook_id IN (
       WITH RECURSIVE known (id) AS (
         SELECT MIN(webhook_id) FROM webhook_deliveries
         UNION ALL
         SELECT (SELECT MIN(webhook_id) FROM webhook_deliveries WHERE webhook_id > known.id)
         FROM known WHERE known.id IS NOT NULL)
       SELECT id FROM known WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM webhooks))
     LIMIT $1)";

impl SqliteStore {
    /// Runs a statement of a write of several.
    async fn step(
        &self,
        op: &'static str,
        write: &mut Write,
        statement: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<u64, StoreError> {
        let done = statement.execute(write.connection()).await;
        Ok(done.map_err(self.failed(op))?.rows_affected())
    }

    async fn put_announced(
        &self,
        op: &'static str,
        write: &mut Write,
        row: &AnnouncedRow,
    ) -> Result<(), StoreError> {
        let put = sqlx::query(
            "INSERT INTO webhook_announced (id, state, reason, expires_at, tenant, metadata)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (id) DO UPDATE SET
               state = excluded.state, reason = excluded.reason, expires_at = excluded.expires_at,
               tenant = excluded.tenant, metadata = excluded.metadata",
        )
        .bind(row.id.as_str())
        .bind(&row.state)
        .bind(&row.reason)
        .bind(row.expires_at.map(WireTime::unix_us))
        .bind(&row.tenant)
        .bind(to_json(&row.metadata));
        self.step(op, write, put).await.map(drop)
    }
}

#[async_trait]
impl Webhooks for SqliteStore {
    async fn webhooks(&self) -> Result<Vec<WebhookRow>, StoreError> {
        let query = sqlx::query_as(
            "SELECT id, name, url, secret, events, tenant, is_configured, disabled, created_at
             FROM webhooks ORDER BY created_at, id",
        );
        let rows: Vec<Webhook> = self.read_all("read the webhooks", query).await?;
        Ok(rows.into_iter().filter_map(webhook).collect())
    }

    async fn add_webhook(&self, webhook: &WebhookRow) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO webhooks
               (id, name, url, secret, events, tenant, is_configured, disabled, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(&webhook.id)
        .bind(&webhook.name)
        .bind(&webhook.url)
        .bind(webhook.secret.as_ref().map(|secret| &secret.0))
        .bind(to_json(&webhook.events))
        .bind(&webhook.tenant)
        .bind(webhook.is_configured)
        .bind(&webhook.disabled)
        .bind(webhook.created_at.unix_us());
        self.write("add a webhook", statement).await.map(drop)
    }

    async fn change_webhook(&self, webhook: &WebhookRow) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "UPDATE webhooks SET name = $2, url = $3, events = $4, tenant = $5, disabled = $6
             WHERE id = $1",
        )
        .bind(&webhook.id)
        .bind(&webhook.name)
        .bind(&webhook.url)
        .bind(to_json(&webhook.events))
        .bind(&webhook.tenant)
        .bind(&webhook.disabled);
        let done = self.write("change a webhook", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn delete_webhook(&self, id: &str) -> Result<bool, StoreError> {
        let statement = sqlx::query("DELETE FROM webhooks WHERE id = $1").bind(id);
        let done = self.write("delete a webhook", statement).await?;
        Ok(done.rows_affected() > 0)
    }
}

#[async_trait]
impl Announcements for SqliteStore {
    async fn is_tracking(&self) -> Result<bool, StoreError> {
        let query = sqlx::query_as("SELECT only_row FROM webhook_tracking");
        let row: Option<(i64,)> = self.read_one("read what is announced", query).await?;
        Ok(row.is_some())
    }

    async fn start_tracking(&self, sandboxes: &[AnnouncedRow]) -> Result<(), StoreError> {
        const OP: &str = "begin to announce events";
        let mut write = self.begin(OP).await?;
        for statement in [
            "DELETE FROM webhook_announced",
            "DELETE FROM webhook_ends",
            "INSERT INTO webhook_tracking (only_row) VALUES (1) ON CONFLICT (only_row) DO NOTHING",
        ] {
            self.step(OP, &mut write, sqlx::query(statement)).await?;
        }
        for row in sandboxes {
            self.put_announced(OP, &mut write, row).await?;
        }
        self.commit(OP, write).await
    }

    async fn stop_tracking(&self) -> Result<(), StoreError> {
        const OP: &str = "end the announcement of events";
        let mut write = self.begin(OP).await?;
        for statement in [
            "DELETE FROM webhook_tracking",
            "DELETE FROM webhook_announced",
            "DELETE FROM webhook_ends",
        ] {
            self.step(OP, &mut write, sqlx::query(statement)).await?;
        }
        self.commit(OP, write).await
    }

    async fn announced(&self) -> Result<Vec<AnnouncedRow>, StoreError> {
        let query = sqlx::query_as(
            "SELECT id, state, reason, expires_at, tenant, metadata FROM webhook_announced",
        );
        let rows: Vec<Announced> = self.read_all("read what is announced", query).await?;
        Ok(rows.into_iter().map(announced).collect())
    }

    async fn announce(&self, announcement: &Announcement) -> Result<(), StoreError> {
        const OP: &str = "announce events";
        let mut write = self.begin(OP).await?;
        for row in &announcement.announced {
            self.put_announced(OP, &mut write, row).await?;
        }
        for id in &announcement.ended {
            for statement in [
                "DELETE FROM webhook_announced WHERE id = $1",
                "DELETE FROM webhook_ends WHERE id = $1",
            ] {
                let forget = sqlx::query(statement).bind(id.as_str());
                self.step(OP, &mut write, forget).await?;
            }
        }
        for new in &announcement.deliveries {
            let insert = sqlx::query(
                "INSERT INTO webhook_deliveries
                   (webhook_id, event_id, event_type, sandbox_id, body, status, attempts,
                    created_at, due_at)
                 VALUES ($1, $2, $3, $4, $5, 'pending', 0, $6, $6)
                 ON CONFLICT (webhook_id, event_id) DO NOTHING",
            )
            .bind(&new.webhook_id)
            .bind(&new.event_id)
            .bind(&new.event_type)
            .bind(new.sandbox_id.as_ref().map(SandboxId::as_str))
            .bind(&new.body)
            .bind(new.created_at.unix_us());
            self.step(OP, &mut write, insert).await?;
        }
        self.commit(OP, write).await
    }

    async fn unannounced_ends(&self, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        let query = sqlx::query_as(history::history!(
            "WHERE id IN (SELECT id FROM webhook_ends) ORDER BY ended_at, id LIMIT $1"
        ))
        .bind(limit);
        let rows: Vec<history::Row> = self.read_all("read unannounced ends", query).await?;
        rows.into_iter().map(history::entry).collect()
    }
}

#[async_trait]
impl Deliveries for SqliteStore {
    async fn next_delivery(&self, webhook: &str) -> Result<Option<DeliveryRow>, StoreError> {
        let query = sqlx::query_as(NEXT).bind(webhook);
        let row: Option<Delivery> = self.read_one("read the next delivery", query).await?;
        Ok(row.and_then(delivery))
    }

    async fn begin_attempt(&self, id: i64) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "UPDATE webhook_deliveries SET attempts = attempts + 1
             WHERE seq = $1 AND status = 'pending'",
        )
        .bind(id);
        let done = self.write("begin a delivery", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn end_attempt(&self, id: i64, result: &AttemptResult) -> Result<(), StoreError> {
        let ended_at = (result.status != DeliveryStatus::Pending).then_some(result.at);
        let statement = sqlx::query(
            "UPDATE webhook_deliveries
             SET status = $2, ended_at = $3, due_at = $4, answer = $5, error = $6
             WHERE seq = $1 AND status = 'pending'",
        )
        .bind(id)
        .bind(result.status.as_str())
        .bind(ended_at.map(WireTime::unix_us))
        .bind(result.due_at.unix_us())
        .bind(result.answer.map(i64::from))
        .bind(&result.error);
        self.write("end a delivery", statement).await.map(drop)
    }

    async fn deliveries(
        &self,
        webhook: &str,
        status: Option<DeliveryStatus>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<DeliveryRow>, StoreError> {
        let before = before.unwrap_or(i64::MAX);
        let query = match status {
            None => sqlx::query_as(PAGE).bind(webhook).bind(before).bind(limit),
            Some(status) => {
                let query = sqlx::query_as(PAGE_OF_STATUS).bind(webhook).bind(before);
                query.bind(limit).bind(status.as_str())
            }
        };
        let rows: Vec<Delivery> = self.read_all("list deliveries", query).await?;
        Ok(rows.into_iter().filter_map(delivery).collect())
    }

    async fn redeliver(&self, webhook: &str, id: i64, at: WireTime) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "UPDATE webhook_deliveries
             SET status = 'pending', attempts = 0, due_at = $3, ended_at = NULL
             WHERE seq = $2 AND webhook_id = $1 AND status <> 'pending'",
        )
        .bind(webhook)
        .bind(id)
        .bind(at.unix_us());
        let done = self.write("redeliver", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn give_up(
        &self,
        webhook: &str,
        error: &str,
        at: WireTime,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let statement = sqlx::query(GIVE_UP)
            .bind(webhook)
            .bind(error)
            .bind(at.unix_us())
            .bind(limit);
        let done = self.write("give up deliveries", statement).await?;
        Ok(done.rows_affected())
    }

    async fn pending_by_webhook(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let query = sqlx::query_as(PENDING);
        let rows: Vec<(String, i64)> = self.read_all("count deliveries", query).await?;
        let count = |(id, count)| (id, u64::try_from(count).unwrap_or(0));
        Ok(rows.into_iter().map(count).collect())
    }

    async fn backlog(&self) -> Result<DeliveryBacklog, StoreError> {
        let query = sqlx::query_as(BACKLOG);
        let row: Option<(i64, i64, Option<i64>)> = self.read_one("count deliveries", query).await?;
        let (dead, pending, oldest) = row.unwrap_or_default();
        let count = |count| u64::try_from(count).unwrap_or(0);
        Ok(DeliveryBacklog {
            pending: count(pending),
            dead: count(dead),
            oldest_pending: oldest.and_then(WireTime::from_unix_us),
        })
    }

    async fn prune_deliveries(
        &self,
        delivered_before: WireTime,
        dead_before: WireTime,
        limit: u32,
    ) -> Result<u64, StoreError> {
        const OP: &str = "prune deliveries";
        let limit = i64::from(limit);
        let mut deleted = 0;
        for (status, before) in [
            (DeliveryStatus::Delivered, delivered_before),
            (DeliveryStatus::Dead, dead_before),
        ] {
            let statement = sqlx::query(PRUNE_ENDED).bind(status.as_str());
            let statement = statement.bind(before.unix_us()).bind(limit - deleted);
            deleted += self
                .write(OP, statement)
                .await?
                .rows_affected()
                .cast_signed();
        }
        let statement = sqlx::query(PRUNE_ORPHANS).bind(limit - deleted);
        deleted += self
            .write(OP, statement)
            .await?
            .rows_affected()
            .cast_signed();
        Ok(deleted.cast_unsigned())
    }
}

fn webhook(row: Webhook) -> Option<WebhookRow> {
    let (id, name, url, secret, events, tenant, is_configured, disabled, created_at) = row;
    Some(WebhookRow {
        id,
        name,
        url,
        secret: secret.map(WebhookSecret),
        events: stored_events(&events),
        tenant,
        is_configured,
        disabled,
        created_at: WireTime::from_unix_us(created_at)?,
    })
}

fn announced(row: Announced) -> AnnouncedRow {
    let (id, state, reason, expires_at, tenant, metadata) = row;
    AnnouncedRow {
        id: SandboxId::new(id),
        state,
        reason,
        expires_at: expires_at.and_then(WireTime::from_unix_us),
        tenant,
        metadata: stored_metadata(&metadata),
    }
}

/// `None` for a row with an impossible value, which is not sent then.
fn delivery(row: Delivery) -> Option<DeliveryRow> {
    let (
        id,
        webhook_id,
        event_id,
        event_type,
        sandbox_id,
        body,
        status,
        attempts,
        created_at,
        due_at,
        ended_at,
        answer,
        error,
    ) = row;
    Some(DeliveryRow {
        id,
        webhook_id,
        event_id,
        event_type,
        sandbox_id: sandbox_id.map(SandboxId::new),
        body,
        status: DeliveryStatus::of(&status)?,
        attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
        created_at: WireTime::from_unix_us(created_at)?,
        due_at: WireTime::from_unix_us(due_at)?,
        ended_at: ended_at.and_then(WireTime::from_unix_us),
        answer: answer.and_then(|status| u16::try_from(status).ok()),
        error,
    })
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Row};

    use super::*;
    use crate::Store;

    /// Most rows of the store may be deliveries, and deleting keeps other writes waiting.
    #[tokio::test]
    async fn no_statement_looks_at_every_delivery() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("s.db"))
            .await
            .unwrap();
        for statement in [
            NEXT,
            PAGE,
            PAGE_OF_STATUS,
            PENDING,
            BACKLOG,
            GIVE_UP,
            PRUNE_ENDED,
            PRUNE_ORPHANS,
        ] {
            let plan = format!("EXPLAIN QUERY PLAN {statement}");
            let plan = sqlx::query(AssertSqlSafe(plan)).fetch_all(&store.reader);
            let plan: Vec<String> = plan.await.unwrap().iter().map(|row| row.get(3)).collect();
            let scans = |step: &String| step.starts_with("SCAN webhook_deliveries");
            assert!(!plan.iter().any(scans), "{statement}: {plan:?}");
            let sorts = plan
                .iter()
                .any(|step| step.contains("TEMP B-TREE FOR ORDER"));
            let is_rare = statement == PAGE_OF_STATUS;
            assert!(!sorts || is_rare, "{statement}: {plan:?}");
            let reads = |step: &String| step.contains("USING INDEX webhook_deliveries_listed");
            assert!(!is_rare || !plan.iter().any(reads), "{statement}: {plan:?}");
        }
        store.close().await;
    }
}
