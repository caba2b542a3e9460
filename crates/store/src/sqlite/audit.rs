//! Table `audit_entries`.

use async_trait::async_trait;
use osb_protocol::{WireTime, audit::AuditEntry};

use super::SqliteStore;
use crate::{AuditPlace, AuditQuery, AuditStore, StoreError, audit::Columns};

type Row = (
    i64,
    String,
    i64,
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
impl AuditStore for SqliteStore {
    async fn append_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        const OP: &str = "write the audit trail";
        let mut write = self.begin(OP).await?;
        for entry in entries {
            let columns = Columns::of(entry)?;
            sqlx::query(
                "INSERT INTO audit_entries
                   (id, at, action, outcome, actor_id, actor_name, object_kind, object_id, tenant,
                    details)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO NOTHING",
            )
            .bind(columns.id)
            .bind(columns.at.unix_us())
            .bind(columns.action)
            .bind(columns.outcome)
            .bind(columns.actor_id)
            .bind(columns.actor_name)
            .bind(columns.object_kind)
            .bind(columns.object_id)
            .bind(columns.tenant)
            .bind(columns.details)
            .execute(write.connection())
            .await
            .map_err(self.failed(OP))?;
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
             WHERE ($1 IS NULL OR seq < $1)
               AND ($2 IS NULL OR at >= $2)
               AND ($3 IS NULL OR at < $3)
               AND ($4 IS NULL OR actor_id = $4 OR actor_name = $4)
               AND ($5 IS NULL OR action = $5)
               AND ($6 IS NULL OR (object_kind = 'sandbox' AND object_id = $6))
               AND ($7 IS NULL OR tenant = $7)
               AND ($8 IS NULL OR outcome = $8)
             ORDER BY seq DESC LIMIT $9",
        )
        .bind(query.before.map(|AuditPlace(seq)| seq))
        .bind(query.since.map(WireTime::unix_us))
        .bind(query.until.map(WireTime::unix_us))
        .bind(&query.actor)
        .bind(&query.action)
        .bind(&query.sandbox)
        .bind(&query.tenant)
        .bind(query.outcome.map(|outcome| outcome.as_str()))
        .bind(most);
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
        .bind(most);
        let too_many = self.write(OP, too_many).await?.rows_affected();
        let too_old = sqlx::query(
            "DELETE FROM audit_entries WHERE seq IN (
               SELECT seq FROM audit_entries WHERE at < $1 ORDER BY at LIMIT $2)",
        )
        .bind(before.unix_us())
        .bind(most);
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
    let time = WireTime::from_unix_us(at).or_else(|| WireTime::from_unix_us(0));
    let columns = Columns {
        id,
        at: time.expect("0 is a valid time"),
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
