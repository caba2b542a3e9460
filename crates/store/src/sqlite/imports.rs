//! Table `imported_files`.

use std::collections::HashMap;

use async_trait::async_trait;
use osb_protocol::SandboxId;

use super::SqliteStore;
use crate::{ForeignImport, ForeignImports, ImportedFiles, StoreError};

type Row = (String, Option<Vec<u8>>, Option<Vec<u8>>);

#[async_trait]
impl ForeignImports for SqliteStore {
    async fn imported_files(&self) -> Result<HashMap<SandboxId, ImportedFiles>, StoreError> {
        let query = sqlx::query_as("SELECT id, expiry, metadata FROM imported_files");
        let rows: Vec<Row> = self.read_all("read the imported files", query).await?;
        // A digest of another length is not that of any file.
        let digest = |bytes: Option<Vec<u8>>| bytes?.try_into().ok();
        let imported = rows.into_iter().map(|(id, expiry, metadata)| {
            let files = ImportedFiles {
                expiry: digest(expiry),
                metadata: digest(metadata),
            };
            (SandboxId::new(id), files)
        });
        Ok(imported.collect())
    }

    async fn import(&self, id: &SandboxId, import: &ForeignImport) -> Result<(), StoreError> {
        const OP: &str = "import the files of another server";
        let digest = |digest: &Option<[u8; 32]>| digest.map(|digest| digest.to_vec());
        let metadata = import.metadata.as_ref().map(serde_json::to_string);
        let metadata = metadata.transpose().map_err(|source| StoreError::Damaged {
            what: "sandbox metadata",
            source,
        })?;
        let mut write = self.begin(OP).await?;
        sqlx::query(
            "INSERT INTO sandbox_changes (id, expires_at, metadata, tenant) VALUES ($1, $2, $3, $4)
             ON CONFLICT (id) DO UPDATE SET
               expires_at = COALESCE(excluded.expires_at, sandbox_changes.expires_at),
               metadata = COALESCE(excluded.metadata, sandbox_changes.metadata),
               tenant = COALESCE(excluded.tenant, sandbox_changes.tenant)",
        )
        .bind(id.as_str())
        .bind(import.expires_at.map(|at| at.unix_us()))
        .bind(metadata)
        .bind(&import.tenant)
        .execute(write.connection())
        .await
        .map_err(self.failed(OP))?;
        sqlx::query(
            "INSERT INTO imported_files (id, expiry, metadata) VALUES ($1, $2, $3)
             ON CONFLICT (id) DO UPDATE
             SET expiry = excluded.expiry, metadata = excluded.metadata",
        )
        .bind(id.as_str())
        .bind(digest(&import.files.expiry))
        .bind(digest(&import.files.metadata))
        .execute(write.connection())
        .await
        .map_err(self.failed(OP))?;
        self.commit(OP, write).await
    }
}
