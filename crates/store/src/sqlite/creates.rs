//! Tables `unanswered_creates` and `create_keys`.

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};

use super::SqliteStore;
use crate::{CreateKey, CreateRequests, StoreError, UnansweredCreate};

#[async_trait]
impl CreateRequests for SqliteStore {
    async fn set_unanswered(&self, create: &UnansweredCreate) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO unanswered_creates (id, image, created_at) VALUES ($1, $2, $3)
             ON CONFLICT (id) DO NOTHING",
        )
        .bind(create.id.as_str())
        .bind(&create.image)
        .bind(create.created_at.unix_us());
        self.write("keep a create", statement).await.map(drop)
    }

    async fn set_answered(&self, id: &SandboxId) -> Result<(), StoreError> {
        let statement =
            sqlx::query("DELETE FROM unanswered_creates WHERE id = $1").bind(id.as_str());
        self.write("keep that a create is answered", statement)
            .await
            .map(drop)
    }

    async fn set_all_answered(&self) -> Result<(), StoreError> {
        let statement = sqlx::query("DELETE FROM unanswered_creates");
        self.write("keep that creates are answered", statement)
            .await
            .map(drop)
    }

    async fn all_unanswered(&self) -> Result<Vec<UnansweredCreate>, StoreError> {
        type Row = (String, String, i64);
        let query = sqlx::query_as("SELECT id, image, created_at FROM unanswered_creates");
        let rows: Vec<Row> = self.read_all("read the unanswered creates", query).await?;
        let creates = rows.into_iter().filter_map(|(id, image, created_at)| {
            Some(UnansweredCreate {
                id: SandboxId::new(id),
                image,
                created_at: WireTime::from_unix_us(created_at)?,
            })
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
        let done = sqlx::query(
            "INSERT INTO create_keys (key, body, sandbox_id, used_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (key) DO UPDATE
             SET body = excluded.body, sandbox_id = excluded.sandbox_id, used_at = excluded.used_at
             WHERE create_keys.used_at < $5",
        )
        .bind(&claim.key[..])
        .bind(&claim.body[..])
        .bind(claim.sandbox_id.as_str())
        .bind(claim.used_at.unix_us())
        .bind(expired.unix_us())
        .execute(write.connection())
        .await
        .map_err(self.failed(OP))?;
        if done.rows_affected() == 1 {
            self.commit(OP, write).await?;
            return Ok(None);
        }
        let (body, sandbox_id, used_at): (Vec<u8>, String, i64) =
            sqlx::query_as("SELECT body, sandbox_id, used_at FROM create_keys WHERE key = $1")
                .bind(&claim.key[..])
                .fetch_one(write.connection())
                .await
                .map_err(self.failed(OP))?;
        self.roll_back(OP, write).await?;
        Ok(Some(CreateKey {
            key: claim.key,
            // A digest of another length is not that of any body.
            body: body.try_into().unwrap_or_default(),
            sandbox_id: SandboxId::new(sandbox_id),
            used_at: WireTime::from_unix_us(used_at).unwrap_or(claim.used_at),
        }))
    }

    async fn free_key(&self, key: &[u8; 32], id: &SandboxId) -> Result<(), StoreError> {
        let statement = sqlx::query("DELETE FROM create_keys WHERE key = $1 AND sandbox_id = $2")
            .bind(&key[..])
            .bind(id.as_str());
        self.write("free an idempotency key", statement)
            .await
            .map(drop)
    }

    async fn prune_keys(&self, before: WireTime) -> Result<u64, StoreError> {
        let statement =
            sqlx::query("DELETE FROM create_keys WHERE used_at < $1").bind(before.unix_us());
        let done = self.write("prune idempotency keys", statement).await?;
        Ok(done.rows_affected())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HistoryEntry, Outcome, SandboxHistory, sqlite::tests::store};

    fn at(us: i64) -> WireTime {
        WireTime::from_unix_us(us).unwrap()
    }

    #[tokio::test]
    async fn a_create_is_unanswered_until_it_is_answered_or_over() {
        let (store, _folder) = store().await;
        let create = |id: &str| UnansweredCreate {
            id: id.into(),
            image: "debian:12".into(),
            created_at: at(1),
        };
        for id in ["answered", "over", "left"] {
            store.set_unanswered(&create(id)).await.unwrap();
        }
        store.set_answered(&"answered".into()).await.unwrap();
        let over = HistoryEntry {
            id: "over".into(),
            image: String::new(),
            created_at: at(1),
            ended_at: at(2),
            outcome: Outcome::Abandoned,
            reason: String::new(),
            message: String::new(),
            stages: Vec::new(),
        };
        store.finish(&over).await.unwrap();
        let read = store.history(&over.id).await.unwrap().unwrap();
        assert_eq!(read.outcome, Outcome::Abandoned);
        assert_eq!(store.all_unanswered().await.unwrap(), [create("left")]);
        store.set_all_answered().await.unwrap();
        assert_eq!(store.all_unanswered().await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_key_that_is_taken_keeps_the_connection() {
        let (store, _folder) = store().await;
        let claim = CreateKey {
            key: [1; 32],
            body: [2; 32],
            sandbox_id: "a".into(),
            used_at: at(10),
        };
        // Lasts as long as the connection.
        let marked = sqlx::query("CREATE TEMPORARY TABLE mark (id INTEGER)");
        marked.execute(&store.writer).await.unwrap();
        for first in [None, Some(claim.clone())] {
            assert_eq!(store.claim_key(&claim, at(0)).await.unwrap(), first);
        }
        let mark = sqlx::query("SELECT id FROM mark");
        mark.execute(&store.writer).await.unwrap();
    }

    #[tokio::test]
    async fn a_key_is_claimed_once_until_it_is_freed_or_expires() {
        let (store, _folder) = store().await;
        let claim = |id: &str, us| CreateKey {
            key: [1; 32],
            body: [2; 32],
            sandbox_id: id.into(),
            used_at: at(us),
        };
        assert_eq!(store.claim_key(&claim("a", 10), at(0)).await.unwrap(), None);
        let first = store.claim_key(&claim("b", 20), at(10)).await.unwrap();
        assert_eq!(first, Some(claim("a", 10)));
        store.free_key(&[1; 32], &"b".into()).await.unwrap();
        let first = store.claim_key(&claim("b", 20), at(10)).await.unwrap();
        assert_eq!(first, Some(claim("a", 10)), "only its own sandbox frees it");
        store.free_key(&[1; 32], &"a".into()).await.unwrap();
        assert_eq!(store.claim_key(&claim("b", 20), at(0)).await.unwrap(), None);
        let expired = store.claim_key(&claim("c", 40), at(21)).await.unwrap();
        assert_eq!(expired, None);
        assert_eq!(store.prune_keys(at(40)).await.unwrap(), 0);
        assert_eq!(store.prune_keys(at(41)).await.unwrap(), 1);
    }
}
