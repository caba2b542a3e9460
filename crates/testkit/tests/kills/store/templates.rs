//! Templates in a store whose caller is killed at a step.

use std::collections::HashMap;

use async_trait::async_trait;
use osb_protocol::{WireTime, lifecycle::TemplatePhase};
use osb_store::{
    StoreError, StoredFor, TemplateChange, TemplateQuery, TemplateRow, TemplateStore, TemplateTotal,
};

use super::KilledStore;

/// Writes are steps.
#[async_trait]
impl TemplateStore for KilledStore {
    async fn add_template(&self, template: &TemplateRow) -> Result<bool, StoreError> {
        self.fuse.step(self.inner.add_template(template)).await
    }

    async fn template(&self, id: &str) -> Result<Option<TemplateRow>, StoreError> {
        self.inner.template(id).await
    }

    async fn templates(
        &self,
        query: &TemplateQuery,
    ) -> Result<(Vec<TemplateRow>, u64), StoreError> {
        self.inner.templates(query).await
    }

    async fn template_log(&self, id: &str) -> Result<Option<String>, StoreError> {
        self.inner.template_log(id).await
    }

    async fn template_phases(
        &self,
        ids: &[String],
    ) -> Result<HashMap<String, TemplatePhase>, StoreError> {
        self.inner.template_phases(ids).await
    }

    async fn template_bytes(&self, of: StoredFor<'_>) -> Result<u64, StoreError> {
        self.inner.template_bytes(of).await
    }

    async fn template_totals(&self) -> Result<Vec<TemplateTotal>, StoreError> {
        self.inner.template_totals().await
    }

    async fn change_template(
        &self,
        id: &str,
        from: TemplatePhase,
        change: &TemplateChange,
    ) -> Result<bool, StoreError> {
        let write = self.inner.change_template(id, from, change);
        self.fuse.step(write).await
    }

    async fn mark_template(&self, id: &str, at: WireTime) -> Result<bool, StoreError> {
        self.fuse.step(self.inner.mark_template(id, at)).await
    }

    async fn remove_template(&self, id: &str, from: TemplatePhase) -> Result<bool, StoreError> {
        self.fuse.step(self.inner.remove_template(id, from)).await
    }

    async fn open_templates(&self, after: &str, most: u32) -> Result<Vec<TemplateRow>, StoreError> {
        self.inner.open_templates(after, most).await
    }
}
