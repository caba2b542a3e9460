//! Tables `unanswered_creates` and `create_keys`.

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};

use super::{
    PostgresStore,
    values::{Moment, text},
};
use crate::{CreateKey, CreateRequests, StoreError, UnansweredCreate};

#[async_trait]
impl CreateRequests for PostgresStore {
    async fn set_unanswered(&self, create: &UnansweredCreate) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO unanswered_creates (id, image, created_at, tenant)
             VALUES ($1, $2, $3, $4)
             ON CONFLICT (id) DO NOTHING",
        )
        .bind(text(create.id.as_str()))
        .bind(text(&create.image))
        .bind(Moment(create.created_at))
        .bind(create.tenant.as_deref().map(text));
        self.write("keep a create", statement).await.map(drop)
    }

    async fn set_answered(&self, id: &SandboxId) -> Result<(), StoreError> {
        let statement =
            sqlx::query("DELETE FROM unanswered_creates WHERE id = $1").bind(text(id.as_str()));
        self.write("keep that a create is answered", statement)
            .await
            .map(drop)
    }

    async fn set_all_answered(&self, except: &[SandboxId]) -> Result<(), StoreError> {
        let except: Vec<_> = except.iter().map(|id| text(id.as_str())).collect();
        let statement =
            sqlx::query("DELETE FROM unanswered_creates WHERE id <> ALL($1)").bind(except);
        self.write("keep that creates are answered", statement)
            .await
            .map(drop)
    }

    async fn all_unanswered(&self) -> Result<Vec<UnansweredCreate>, StoreError> {
        type Row = (String, String, Moment, Option<String>);
        let query = sqlx::query_as("SELECT id, image, created_at, tenant FROM unanswered_creates");
        let rows: Vec<Row> = self.read_all("read the unanswered creates", query).await?;
        let creates = rows
            .into_iter()
            .map(|(id, image, Moment(created_at), tenant)| UnansweredCreate {
                id: SandboxId::new(id),
                image,
                created_at,
                tenant,
            });
        Ok(creates.collect())
    }

    async fn claim_key(
        &self,
        claim: &CreateKey,
        expired: WireTime,
    ) -> Result<Option<CreateKey>, StoreError> {
        const OP: &str = "keep an idempotency key";
        let mut write = self.begin(OP).await?;
        let insert = sqlx::query(
            "INSERT INTO create_keys (key, body, sandbox_id, used_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (key) DO UPDATE
             SET body = excluded.body, sandbox_id = excluded.sandbox_id, used_at = excluded.used_at
             WHERE create_keys.used_at < $5",
        )
        .bind(&claim.key[..])
        .bind(&claim.body[..])
        .bind(text(claim.sandbox_id.as_str()))
        .bind(Moment(claim.used_at))
        .bind(Moment(expired));
        let done = self.run(OP, insert.execute(write.connection())).await?;
        if done.rows_affected() == 1 {
            self.commit(OP, write).await?;
            return Ok(None);
        }
        let read =
            sqlx::query_as("SELECT body, sandbox_id, used_at FROM create_keys WHERE key = $1")
                .bind(&claim.key[..]);
        let (body, sandbox_id, Moment(used_at)): (Vec<u8>, String, Moment) =
            self.run(OP, read.fetch_one(write.connection())).await?;
        // The conflict locked the row, which the end of the transaction frees.
        self.commit(OP, write).await?;
        Ok(Some(CreateKey {
            key: claim.key,
            // A digest of another length is not that of any body.
            body: body.try_into().unwrap_or_default(),
            sandbox_id: SandboxId::new(sandbox_id),
            used_at,
        }))
    }

    async fn free_key(&self, key: &[u8; 32], id: &SandboxId) -> Result<(), StoreError> {
        let statement = sqlx::query("DELETE FROM create_keys WHERE key = $1 AND sandbox_id = $2")
            .bind(&key[..])
            .bind(text(id.as_str()));
        self.write("free an idempotency key", statement)
            .await
            .map(drop)
    }

    async fn create_key(
        &self,
        key: &[u8; 32],
        expired: WireTime,
    ) -> Result<Option<CreateKey>, StoreError> {
        let query = sqlx::query_as(
            "SELECT body, sandbox_id, used_at FROM create_keys WHERE key = $1 AND used_at >= $2",
        )
        .bind(&key[..])
        .bind(Moment(expired));
        let row: Option<(Vec<u8>, String, Moment)> =
            self.read_one("read an idempotency key", query).await?;
        Ok(row.map(|(body, sandbox_id, Moment(used_at))| CreateKey {
            key: *key,
            // A digest of another length is not that of any body.
            body: body.try_into().unwrap_or_default(),
            sandbox_id: SandboxId::new(sandbox_id),
            used_at,
        }))
    }

    async fn prune_keys(&self, before: WireTime) -> Result<u64, StoreError> {
        self.delete_in_batches("prune idempotency keys", || {
            sqlx::query(
                "DELETE FROM create_keys WHERE ctid = ANY(ARRAY(
                   SELECT ctid FROM create_keys WHERE used_at < $1 LIMIT $2))",
            )
            .bind(Moment(before))
        })
        .await
    }
}
