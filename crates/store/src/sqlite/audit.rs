//! Table `audit_entries`.

use async_trait::async_trait;
use osb_protocol::{WireTime, audit::AuditEntry};
use sqlx::AssertSqlSafe;

use super::SqliteStore;
use crate::{
    AuditPlace, AuditQuery, AuditStore, StoreError,
    audit::{COUNT, Columns, DELETE_OLDEST, DELETE_UNSUCCESSFUL, Excess, select},
};

/// Without statistics, SQLite takes any index for better than the order of the rows.
const WITHOUT_INDEX: &str = "+";

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
        let found = sqlx::query_as(AssertSqlSafe(select(query, WITHOUT_INDEX)))
            .bind(query.end())
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
        // Counted by a reader: other writes need not wait for it.
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
        .bind(before.unix_us())
        .bind(most);
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

#[cfg(test)]
mod tests {
    use osb_protocol::audit::AuditOutcome;
    use sqlx::Row as _;

    use super::*;
    use crate::Store as _;

    #[tokio::test]
    async fn no_page_scans_or_sorts_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("s.db")).await;
        let store = store.unwrap();
        let (tenant, object) = ("audit_entries_tenant", "audit_entries_object");
        let by_place = "INTEGER PRIMARY KEY";
        let any = AuditQuery::default;
        let text = || Some("a".to_owned());
        let time = WireTime::from_unix_us(1);
        for (query, index) in [
            (any(), by_place),
            (
                AuditQuery {
                    since: time,
                    until: time,
                    ..any()
                },
                by_place,
            ),
            (
                AuditQuery {
                    actor: text(),
                    action: text(),
                    outcome: Some(AuditOutcome::Denied),
                    ..any()
                },
                by_place,
            ),
            (
                AuditQuery {
                    tenant: text(),
                    since: time,
                    until: time,
                    ..any()
                },
                tenant,
            ),
            (
                AuditQuery {
                    tenant: text(),
                    sandbox: text(),
                    ..any()
                },
                object,
            ),
        ] {
            let plan = format!("EXPLAIN QUERY PLAN {}", select(&query, WITHOUT_INDEX));
            let plan = sqlx::query(AssertSqlSafe(plan)).fetch_all(&store.reader);
            let plan: Vec<String> = plan.await.unwrap().iter().map(|row| row.get(3)).collect();
            let is_right = plan.len() == 1 && plan[0].contains("SEARCH") && plan[0].contains(index);
            assert!(is_right, "{query:?}: {plan:?}");
        }
        store.close().await;
    }
}
