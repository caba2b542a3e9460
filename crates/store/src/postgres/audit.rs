//! Table `audit_entries`.

use async_trait::async_trait;
use osb_protocol::{WireTime, audit::AuditEntry};
use sqlx::AssertSqlSafe;

use super::{
    PostgresStore,
    values::{Moment, text},
};
use crate::{
    AuditPlace, AuditQuery, AuditStore, StoreError,
    audit::{COUNT, Columns, DELETE_OLDEST, DELETE_UNSUCCESSFUL, Excess, select},
};

/// Lets one writer after another append. No lock on the table: the database takes those itself, for
/// minutes when it vacuums.
const LOCK: &str = "SELECT pg_advisory_xact_lock(
    hashtextextended('opensandbox-server audit ' || COALESCE(current_schema(), ''), 0))";

type Row = (
    i64,
    String,
    Moment,
    String,
    String,
    String,
    String,
    String,
    String,
    Option<String>,
    String,
);

#[async_trait]
impl AuditStore for PostgresStore {
    async fn append_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        const OP: &str = "write the audit trail";
        let mut write = self.begin(OP).await?;
        // Places become visible in their order: a reader that has seen one has seen those before it.
        let lock = sqlx::query(LOCK);
        self.run(OP, lock.execute(write.connection())).await?;
        for entry in entries {
            let columns = Columns::of(entry)?;
            let insert = sqlx::query(
                "INSERT INTO audit_entries
                   (id, at, action, outcome, actor_id, actor_name, object_kind, object_id, tenant,
                    details)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO NOTHING",
            )
            .bind(text(&columns.id))
            .bind(Moment(columns.at))
            .bind(text(&columns.action))
            .bind(&columns.outcome)
            .bind(text(&columns.actor_id))
            .bind(text(&columns.actor_name))
            .bind(text(&columns.object_kind))
            .bind(text(&columns.object_id))
            .bind(columns.tenant.as_deref().map(text))
            .bind(text(&columns.details));
            self.run(OP, insert.execute(write.connection())).await?;
        }
        self.commit(OP, write).await
    }

    async fn audit(
        &self,
        query: &AuditQuery,
        most: u32,
    ) -> Result<Vec<(AuditPlace, AuditEntry)>, StoreError> {
        let found = sqlx::query_as(AssertSqlSafe(select(query, "")))
            .bind(query.end())
            .bind(query.since.map(Moment))
            .bind(query.until.map(Moment))
            .bind(query.actor.as_deref().map(text))
            .bind(query.action.as_deref().map(text))
            .bind(query.sandbox.as_deref().map(text))
            .bind(query.tenant.as_deref().map(text))
            .bind(query.outcome.map(|outcome| outcome.as_str()))
            .bind(i64::from(most));
        let rows: Vec<Row> = self.read_all("read the audit trail", found).await?;
        Ok(rows.into_iter().map(entry).collect())
    }

    async fn prune_audit(&self, before: WireTime, keep: u64, most: u32) -> Result<u64, StoreError> {
        const OP: &str = "prune the audit trail";
        let counts = self.read_one(OP, sqlx::query_as(COUNT)).await?;
        let excess = Excess::of(counts.unwrap_or_default(), keep, most);
        let mut deleted = 0;
        for (statement, number) in [
            (DELETE_UNSUCCESSFUL, excess.unsuccessful),
            (DELETE_OLDEST, excess.oldest),
        ] {
            if number > 0 {
                let done = self.write(OP, sqlx::query(statement).bind(number)).await?;
                deleted += done.rows_affected();
            }
        }
        let too_old = sqlx::query(
            "DELETE FROM audit_entries WHERE seq IN (
               SELECT seq FROM audit_entries WHERE at < $1 ORDER BY at LIMIT $2)",
        )
        .bind(Moment(before))
        .bind(i64::from(most));
        Ok(deleted + self.write(OP, too_old).await?.rows_affected())
    }
}

fn entry(row: Row) -> (AuditPlace, AuditEntry) {
    let (
        seq,
        id,
        at,
        action,
        outcome,
        actor_id,
        actor_name,
        object_kind,
        object_id,
        tenant,
        details,
    ) = row;
    let columns = Columns {
        id,
        at: at.0,
        action,
        outcome,
        actor_id,
        actor_name,
        object_kind,
        object_id,
        tenant,
        details,
    };
    (AuditPlace(seq), columns.into_entry())
}
