//! Table `sandbox_changes`.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};

use super::SqliteStore;
use crate::{Changes, SandboxChanges, StoreError};

#[async_trait]
impl SandboxChanges for SqliteStore {
    async fn all_changes(&self) -> Result<HashMap<SandboxId, Changes>, StoreError> {
        type Row = (
            String,
            Option<i64>,
            Option<String>,
            Option<i64>,
            Option<String>,
        );
        let query = sqlx::query_as(
            "SELECT id, expires_at, metadata, deleted_at, tenant FROM sandbox_changes",
        );
        let rows: Vec<Row> = self.read_all("read the sandbox changes", query).await?;
        rows.into_iter()
            .map(|(id, expires_at, metadata, deleted_at, tenant)| {
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
                    tenant,
                };
                Ok((SandboxId::new(id), changes))
            })
            .collect()
    }

    async fn set_expiry(
        &self,
        id: &SandboxId,
        at: WireTime,
        tenant: Option<&str>,
    ) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO sandbox_changes (id, expires_at, tenant) VALUES ($1, $2, $3)
             ON CONFLICT (id) DO UPDATE
             SET expires_at = excluded.expires_at,
                 tenant = COALESCE(excluded.tenant, sandbox_changes.tenant)",
        )
        .bind(id.as_str())
        .bind(at.unix_us())
        .bind(tenant);
        self.write("keep the expiry", statement).await.map(drop)
    }

    async fn set_metadata(
        &self,
        id: &SandboxId,
        metadata: &BTreeMap<String, String>,
        tenant: Option<&str>,
    ) -> Result<(), StoreError> {
        let text = serde_json::to_string(metadata).map_err(|source| StoreError::Damaged {
            what: "sandbox metadata",
            source,
        })?;
        let statement = sqlx::query(
            "INSERT INTO sandbox_changes (id, metadata, tenant) VALUES ($1, $2, $3)
             ON CONFLICT (id) DO UPDATE
             SET metadata = excluded.metadata,
                 tenant = COALESCE(excluded.tenant, sandbox_changes.tenant)",
        )
        .bind(id.as_str())
        .bind(text)
        .bind(tenant);
        self.write("keep the metadata", statement).await.map(drop)
    }

    async fn set_deleted(
        &self,
        id: &SandboxId,
        at: WireTime,
        tenant: Option<&str>,
    ) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO sandbox_changes (id, deleted_at, tenant) VALUES ($1, $2, $3)
             ON CONFLICT (id) DO UPDATE
             SET deleted_at = COALESCE(sandbox_changes.deleted_at, excluded.deleted_at),
                 tenant = COALESCE(excluded.tenant, sandbox_changes.tenant)",
        )
        .bind(id.as_str())
        .bind(at.unix_us())
        .bind(tenant);
        self.write("keep the delete intent", statement)
            .await
            .map(drop)
    }
}
