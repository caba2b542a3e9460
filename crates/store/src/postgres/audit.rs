//! Table `audit_entries`.

use async_trait::async_trait;
use osb_protocol::{WireTime, audit::AuditEntry};

use super::{
    PostgresStore,
    values::{Moment, text},
};
use crate::{AuditPlace, AuditQuery, AuditStore, StoreError, audit::Columns};

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
        let lock = sqlx::query("LOCK TABLE audit_entries IN SHARE ROW EXCLUSIVE MODE");
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
        let found = sqlx::query_as(
            "SELECT seq, id, at, action, outcome, actor_id, actor_name, object_kind, object_id, tenant,
               details
             FROM audit_entries
             WHERE ($1::bigint IS NULL OR seq < $1)
               AND ($2::timestamptz IS NULL OR at >= $2)
               AND ($3::timestamptz IS NULL OR at < $3)
               AND ($4::text IS NULL OR actor_id = $4 OR actor_name = $4)
               AND ($5::text IS NULL OR action = $5)
               AND ($6::text IS NULL OR (object_kind = 'sandbox' AND object_id = $6))
               AND ($7::text IS NULL OR tenant = $7)
               AND ($8::text IS NULL OR outcome = $8)
             ORDER BY seq DESC LIMIT $9",
        )
        .bind(query.before.map(|AuditPlace(seq)| seq))
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
        let keep = i64::try_from(keep).unwrap_or(i64::MAX);
        let too_many = sqlx::query(
            "DELETE FROM audit_entries WHERE seq IN (
               SELECT seq FROM audit_entries
               WHERE seq <= (SELECT MAX(seq) FROM audit_entries) - $1 ORDER BY seq LIMIT $2)",
        )
        .bind(keep)
        .bind(i64::from(most));
        let too_many = self.write(OP, too_many).await?.rows_affected();
        let too_old = sqlx::query(
            "DELETE FROM audit_entries WHERE seq IN (
               SELECT seq FROM audit_entries WHERE at < $1 ORDER BY at LIMIT $2)",
        )
        .bind(Moment(before))
        .bind(i64::from(most));
        Ok(too_many + self.write(OP, too_old).await?.rows_affected())
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
