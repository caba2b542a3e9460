//! Table `sandbox_changes`.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};
use sqlx::types::Json;

use super::{
    PostgresStore,
    values::{Moment, text},
};
use crate::{Changes, SandboxChanges, StoreError};

#[async_trait]
impl SandboxChanges for PostgresStore {
    async fn all_changes(&self) -> Result<HashMap<SandboxId, Changes>, StoreError> {
        type Row = (
            String,
            Option<Moment>,
            Option<String>,
            Option<Moment>,
            Option<String>,
        );
        let query = sqlx::query_as(
            "SELECT id, expires_at, metadata::text, deleted_at, tenant FROM sandbox_changes",
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
                    expires_at: expires_at.map(|Moment(at)| at),
                    metadata,
                    deleted_at: deleted_at.map(|Moment(at)| at),
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
        .bind(text(id.as_str()))
        .bind(Moment(at))
        .bind(tenant.map(text));
        self.write("keep the expiry", statement).await.map(drop)
    }

    async fn set_metadata(
        &self,
        id: &SandboxId,
        metadata: &BTreeMap<String, String>,
        tenant: Option<&str>,
    ) -> Result<(), StoreError> {
        let metadata: BTreeMap<_, _> = metadata
            .iter()
            .map(|(key, value)| (text(key), text(value)))
            .collect();
        let statement = sqlx::query(
            "INSERT INTO sandbox_changes (id, metadata, tenant) VALUES ($1, $2, $3)
             ON CONFLICT (id) DO UPDATE
             SET metadata = excluded.metadata,
                 tenant = COALESCE(excluded.tenant, sandbox_changes.tenant)",
        )
        .bind(text(id.as_str()))
        .bind(Json(metadata))
        .bind(tenant.map(text));
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
        .bind(text(id.as_str()))
        .bind(Moment(at))
        .bind(tenant.map(text));
        self.write("keep the delete intent", statement)
            .await
            .map(drop)
    }
}
