//! Table `sandbox_changes`.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};

use super::SqliteStore;
use crate::{Changes, SandboxChanges, StoreError};

#[async_trait]
impl SandboxChanges for SqliteStore {
    async fn all_changes(&self) -> Result<HashMap<SandboxId, Changes>, StoreError> {
        type Row = (String, Option<i64>, Option<String>, Option<i64>);
        let query =
            sqlx::query_as("SELECT id, expires_at, metadata, deleted_at FROM sandbox_changes");
        let rows: Vec<Row> = self.read_all("read the sandbox changes", query).await?;
        rows.into_iter()
            .map(|(id, expires_at, metadata, deleted_at)| {
                let metadata = metadata
                    .map(|text| serde_json::from_str(&text))
                    .transpose()
                    .map_err(|source| StoreError::Damaged {
                        what: "sandbox metadata",
                        source,
                    })?;
                let changes = Changes {
                    expires_at: expires_at.and_then(WireTime::from_unix_us),
                    metadata,
                    deleted_at: deleted_at.and_then(WireTime::from_unix_us),
                };
                Ok((SandboxId::new(id), changes))
            })
            .collect()
    }

    async fn set_expiry(&self, id: &SandboxId, at: WireTime) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO sandbox_changes (id, expires_at) VALUES ($1, $2)
             ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at",
        )
        .bind(id.as_str())
        .bind(at.unix_us());
        self.write("keep the expiry", statement).await.map(drop)
    }

    async fn set_metadata(
        &self,
        id: &SandboxId,
        metadata: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let text = serde_json::to_string(metadata).map_err(|source| StoreError::Damaged {
            what: "sandbox metadata",
            source,
        })?;
        let statement = sqlx::query(
            "INSERT INTO sandbox_changes (id, metadata) VALUES ($1, $2)
             ON CONFLICT (id) DO UPDATE SET metadata = excluded.metadata",
        )
        .bind(id.as_str())
        .bind(text);
        self.write("keep the metadata", statement).await.map(drop)
    }

    async fn set_deleted(&self, id: &SandboxId, at: WireTime) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO sandbox_changes (id, deleted_at) VALUES ($1, $2)
             ON CONFLICT (id) DO UPDATE
             SET deleted_at = COALESCE(sandbox_changes.deleted_at, excluded.deleted_at)",
        )
        .bind(id.as_str())
        .bind(at.unix_us());
        self.write("keep the delete intent", statement)
            .await
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, sqlite::tests::store};

    #[tokio::test]
    async fn changes_survive_a_restart_and_do_not_touch_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/store.db");
        let (id, at) = (
            SandboxId::from("a"),
            WireTime::from_unix_us(5_000_001).unwrap(),
        );
        let metadata = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
        let instance = {
            let store = SqliteStore::open(&path).await.unwrap();
            store.set_expiry(&id, at).await.unwrap();
            store.set_metadata(&id, &metadata).await.unwrap();
            store.set_deleted(&id, at).await.unwrap();
            store
                .set_deleted(&id, at.plus_seconds(9).unwrap())
                .await
                .unwrap();
            let instance = store.instance_id().await.unwrap();
            assert_eq!(store.instance_id().await.unwrap(), instance);
            store.close().await;
            instance
        };
        let store = SqliteStore::open(&path).await.unwrap();
        assert_eq!(store.instance_id().await.unwrap(), instance);
        let want = Changes {
            expires_at: Some(at),
            metadata: Some(metadata),
            deleted_at: Some(at),
        };
        assert_eq!(
            store.all_changes().await.unwrap(),
            HashMap::from([(id, want)])
        );
    }

    #[tokio::test]
    async fn a_folder_in_the_way_is_a_clear_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = SqliteStore::open(folder.path()).await.unwrap_err();
        assert!(
            error.to_string().starts_with("cannot open the store at "),
            "{error}"
        );
    }

    #[tokio::test]
    async fn many_writers_queue_instead_of_failing() {
        let (store, _folder) = store().await;
        let writes = (0..64).map(|n| {
            let store = store.clone();
            async move {
                let at = WireTime::from_unix_us(n).unwrap();
                store.set_expiry(&SandboxId::new(n.to_string()), at).await
            }
        });
        let mut set = tokio::task::JoinSet::new();
        for write in writes {
            set.spawn(write);
        }
        for result in set.join_all().await {
            result.unwrap();
        }
        assert_eq!(store.all_changes().await.unwrap().len(), 64);
    }
}
