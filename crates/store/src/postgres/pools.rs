//! Tables `sandbox_pools` and `sandbox_pool_members`.

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};
use sqlx::{FromRow, Row as _, postgres::PgRow};

use super::{
    PostgresStore,
    values::{Moment, text},
};
use crate::{
    MemberState, PoolChange, PoolMemberRow, PoolRow, PoolStore, StoreError,
    pool::{capacity, key_of, read_state, tenant_of},
};

/// A pool as it is read.
struct StoredPool(PoolRow);

/// A member as it is read.
struct StoredMember(PoolMemberRow);

impl FromRow<'_, PgRow> for StoredPool {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self(PoolRow {
            tenant: tenant_of(row.try_get("tenant")?),
            name: row.try_get("name")?,
            template: row.try_get("template")?,
            revision: row.try_get("revision")?,
            capacity: capacity([
                row.try_get("buffer_max")?,
                row.try_get("buffer_min")?,
                row.try_get("pool_max")?,
                row.try_get("pool_min")?,
            ]),
            created_at: row.try_get::<Moment, _>("created_at")?.0,
            changed_at: row.try_get::<Moment, _>("changed_at")?.0,
        }))
    }
}

impl FromRow<'_, PgRow> for StoredMember {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self(PoolMemberRow {
            id: SandboxId::new(row.try_get::<String, _>("id")?),
            tenant: tenant_of(row.try_get("tenant")?),
            pool: row.try_get("pool")?,
            revision: row.try_get("revision")?,
            settings: row.try_get("settings")?,
            state: read_state(&row.try_get::<String, _>("state")?),
            claim: row.try_get("claim")?,
            created_at: row.try_get::<Moment, _>("created_at")?.0,
            changed_at: row.try_get::<Moment, _>("changed_at")?.0,
        }))
    }
}

#[async_trait]
impl PoolStore for PostgresStore {
    async fn add_pool(&self, pool: &PoolRow) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "INSERT INTO sandbox_pools (tenant, name, template, revision, buffer_max, buffer_min,
               pool_max, pool_min, created_at, changed_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
             ON CONFLICT (tenant, name) DO NOTHING",
        )
        .bind(text(key_of(pool.tenant.as_deref())))
        .bind(text(&pool.name))
        .bind(text(&pool.template))
        .bind(text(&pool.revision))
        .bind(i64::from(pool.capacity.buffer_max))
        .bind(i64::from(pool.capacity.buffer_min))
        .bind(i64::from(pool.capacity.pool_max))
        .bind(i64::from(pool.capacity.pool_min))
        .bind(Moment(pool.created_at))
        .bind(Moment(pool.changed_at));
        let done = self.write("keep a pool", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn all_pools(&self) -> Result<Vec<PoolRow>, StoreError> {
        let query = sqlx::query_as(
            "SELECT tenant, name, template, revision, buffer_max, buffer_min, pool_max, pool_min,
               created_at, changed_at
             FROM sandbox_pools ORDER BY tenant, name",
        );
        let rows: Vec<StoredPool> = self.read_all("read the pools", query).await?;
        Ok(rows.into_iter().map(|row| row.0).collect())
    }

    async fn change_pool(
        &self,
        tenant: Option<&str>,
        name: &str,
        change: &PoolChange,
    ) -> Result<bool, StoreError> {
        const OP: &str = "change a pool";
        let template = change.template.as_ref();
        let (template, revision) = template
            .map(|(template, revision)| (template.as_str(), revision.as_str()))
            .unzip();
        let mut write = self.begin(OP).await?;
        let changed = sqlx::query(
            "UPDATE sandbox_pools SET buffer_max = $3, buffer_min = $4, pool_max = $5, pool_min = $6,
               changed_at = $7, template = COALESCE($8::text, template), revision = COALESCE($9::text, revision)
             WHERE tenant = $1 AND name = $2",
        )
        .bind(text(key_of(tenant)))
        .bind(text(name))
        .bind(i64::from(change.capacity.buffer_max))
        .bind(i64::from(change.capacity.buffer_min))
        .bind(i64::from(change.capacity.pool_max))
        .bind(i64::from(change.capacity.pool_min))
        .bind(Moment(change.at))
        .bind(template.map(text))
        .bind(revision.map(text));
        let changed = self.run(OP, changed.execute(write.connection())).await?;
        if let Some(revision) = revision {
            let drain = sqlx::query(
                "UPDATE sandbox_pool_members SET state = 'draining', changed_at = $4
                 WHERE tenant = $1 AND pool = $2 AND revision <> $3
                   AND state IN ('warming', 'ready')",
            )
            .bind(text(key_of(tenant)))
            .bind(text(name))
            .bind(text(revision))
            .bind(Moment(change.at));
            self.run(OP, drain.execute(write.connection())).await?;
        }
        self.commit(OP, write).await?;
        Ok(changed.rows_affected() > 0)
    }

    async fn remove_pool(
        &self,
        tenant: Option<&str>,
        name: &str,
        at: WireTime,
    ) -> Result<bool, StoreError> {
        const OP: &str = "remove a pool";
        let mut write = self.begin(OP).await?;
        let removed = sqlx::query("DELETE FROM sandbox_pools WHERE tenant = $1 AND name = $2")
            .bind(text(key_of(tenant)))
            .bind(text(name));
        let removed = self.run(OP, removed.execute(write.connection())).await?;
        let drain = sqlx::query(
            "UPDATE sandbox_pool_members SET state = 'draining', changed_at = $3
             WHERE tenant = $1 AND pool = $2 AND state IN ('warming', 'ready')",
        )
        .bind(text(key_of(tenant)))
        .bind(text(name))
        .bind(Moment(at));
        self.run(OP, drain.execute(write.connection())).await?;
        self.commit(OP, write).await?;
        Ok(removed.rows_affected() > 0)
    }

    async fn add_member(&self, member: &PoolMemberRow) -> Result<bool, StoreError> {
        // The lock: a change of the pool at the same time either sees the member, or is seen here.
        let statement = sqlx::query(
            "INSERT INTO sandbox_pool_members (id, tenant, pool, revision, settings, state, claim,
               created_at, changed_at)
             SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT),
               CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT), CAST($8 AS TIMESTAMPTZ),
               CAST($9 AS TIMESTAMPTZ)
             WHERE EXISTS (
               SELECT 1 FROM sandbox_pools WHERE tenant = $2 AND name = $3 AND revision = $4
               FOR SHARE)",
        )
        .bind(text(member.id.as_str()))
        .bind(text(key_of(member.tenant.as_deref())))
        .bind(text(&member.pool))
        .bind(text(&member.revision))
        .bind(text(&member.settings))
        .bind(member.state.as_str())
        .bind(member.claim.as_deref().map(text))
        .bind(Moment(member.created_at))
        .bind(Moment(member.changed_at));
        let done = self.write("keep a member of a pool", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn drain_used_members(&self, at: WireTime) -> Result<u64, StoreError> {
        let statement = sqlx::query(
            "UPDATE sandbox_pool_members SET state = 'draining', changed_at = $1
             WHERE state = 'ready' AND (id IN (SELECT sandbox_id FROM create_keys)
               OR id IN (SELECT id FROM unanswered_creates))",
        )
        .bind(Moment(at));
        let done = self.write("drain members of pools", statement).await?;
        Ok(done.rows_affected())
    }

    async fn all_members(&self) -> Result<Vec<PoolMemberRow>, StoreError> {
        let query = sqlx::query_as(
            "SELECT id, tenant, pool, revision, settings, state, claim, created_at, changed_at
             FROM sandbox_pool_members ORDER BY created_at, id",
        );
        let rows: Vec<StoredMember> = self.read_all("read the members of pools", query).await?;
        Ok(rows.into_iter().map(|row| row.0).collect())
    }

    async fn change_member(
        &self,
        id: &SandboxId,
        from: MemberState,
        to: MemberState,
        claim: Option<&str>,
        at: WireTime,
    ) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "UPDATE sandbox_pool_members SET state = $3, claim = COALESCE($4::text, claim), changed_at = $5
             WHERE id = $1 AND state = $2",
        )
        .bind(text(id.as_str()))
        .bind(from.as_str())
        .bind(to.as_str())
        .bind(claim.map(text))
        .bind(Moment(at));
        let done = self.write("change a member of a pool", statement).await?;
        Ok(done.rows_affected() > 0)
    }

    async fn remove_member(&self, id: &SandboxId, from: MemberState) -> Result<bool, StoreError> {
        let statement =
            sqlx::query("DELETE FROM sandbox_pool_members WHERE id = $1 AND state = $2")
                .bind(text(id.as_str()))
                .bind(from.as_str());
        let done = self.write("forget a member of a pool", statement).await?;
        Ok(done.rows_affected() > 0)
    }
}
