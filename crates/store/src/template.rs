//! Templates (contract: lifecycle §A3).

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use osb_protocol::{WireTime, lifecycle::TemplatePhase};

use crate::{StoreError, StoredFor};

/// A template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateRow {
    /// Its id.
    pub id: String,
    /// The tenant whose template it is.
    pub tenant: Option<String>,
    /// Who made it.
    pub owner: Option<String>,
    /// What it is made from and what its sandboxes run, as a JSON object.
    pub spec: String,
    /// Labels.
    pub metadata: BTreeMap<String, String>,
    /// Its phase.
    pub phase: TemplatePhase,
    /// What the runtime calls the image that was made ready; `None` until there is one.
    pub image: Option<String>,
    /// Why it failed.
    pub message: Option<String>,
    /// Size of the image in bytes, if it was built.
    pub size_bytes: Option<u64>,
    /// When it was accepted.
    pub created_at: WireTime,
    /// Since when it is in its phase.
    pub changed_at: WireTime,
}

/// A transition of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateChange {
    /// Its new phase.
    pub phase: TemplatePhase,
    /// What the runtime calls the image, if it is known from now on.
    pub image: Option<String>,
    /// Why it failed.
    pub message: Option<String>,
    /// The end of what the build wrote, if it is known from now on.
    pub log: Option<String>,
    /// Size of the image in bytes, if it is known from now on.
    pub size_bytes: Option<u64>,
    /// When.
    pub at: WireTime,
}

/// Which templates, and which part of their list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateQuery {
    /// Only those of this tenant.
    pub tenant: Option<String>,
    /// Only those with all of these labels.
    pub metadata: BTreeMap<String, String>,
    /// Also those that were deleted, and whose image is not removed yet.
    pub deleting: bool,
    /// How many to leave out at the start.
    pub skip: u64,
    /// How many at most.
    pub limit: u32,
}

/// How many templates there are in a phase, and how large they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateTotal {
    /// The phase.
    pub phase: TemplatePhase,
    /// How many.
    pub count: u64,
    /// Bytes of those whose size is known.
    pub bytes: u64,
}

/// Templates. The server never removes one by itself: they have no expiry.
#[async_trait]
pub trait TemplateStore: Send + Sync + 'static {
    /// Adds a template; `false` when its id is taken.
    async fn add_template(&self, template: &TemplateRow) -> Result<bool, StoreError>;

    /// One template.
    async fn template(&self, id: &str) -> Result<Option<TemplateRow>, StoreError>;

    /// A part of a list, newest first and then by descending id, and the number of all that match.
    async fn templates(&self, query: &TemplateQuery)
    -> Result<(Vec<TemplateRow>, u64), StoreError>;

    /// The end of what the build of a template wrote; `None` without one.
    async fn template_log(&self, id: &str) -> Result<Option<String>, StoreError>;

    /// Changes a template that is in phase `from`; `false` when it is not, or there is none. An image, a
    /// log and a size that the change does not have stay as they are.
    async fn change_template(
        &self,
        id: &str,
        from: TemplatePhase,
        change: &TemplateChange,
    ) -> Result<bool, StoreError>;

    /// Marks a template as deleted, in whatever phase it is; `false` when it is marked already, or there
    /// is none.
    async fn mark_template(&self, id: &str, at: WireTime) -> Result<bool, StoreError>;

    /// Removes a template that is in phase `from`; `false` when it is not, or there is none.
    async fn remove_template(&self, id: &str, from: TemplatePhase) -> Result<bool, StoreError>;

    /// Templates that are being made or removed, by id, after the id `after`, at most `most`.
    async fn open_templates(&self, after: &str, most: u32) -> Result<Vec<TemplateRow>, StoreError>;

    /// Phases of those templates among `ids` that exist.
    async fn template_phases(
        &self,
        ids: &[String],
    ) -> Result<HashMap<String, TemplatePhase>, StoreError>;

    /// Bytes of the templates of a tenant or an owner whose size is known.
    async fn template_bytes(&self, of: StoredFor<'_>) -> Result<u64, StoreError>;

    /// Numbers and sizes of all templates by phase.
    async fn template_totals(&self) -> Result<Vec<TemplateTotal>, StoreError>;
}

/// The phase with a stored name. An unknown one, which `store check` reports, is no usable template.
pub(crate) fn read_phase(name: &str) -> TemplatePhase {
    TemplatePhase::of(name).unwrap_or(TemplatePhase::Failed)
}

/// The totals of rows with phase, number and bytes.
pub(crate) fn totals(rows: Vec<(String, i64, i64)>) -> Vec<TemplateTotal> {
    let totals = rows.into_iter().map(|(phase, count, bytes)| TemplateTotal {
        phase: read_phase(&phase),
        count: u64::try_from(count).unwrap_or_default(),
        bytes: u64::try_from(bytes).unwrap_or_default(),
    });
    totals.collect()
}

/// Labels as a database keeps them.
pub(crate) fn stored_labels(labels: &BTreeMap<String, String>) -> String {
    serde_json::json!(labels).to_string()
}

/// Labels as they were kept. Unreadable ones, which `store check` reports, are none.
pub(crate) fn read_labels(text: &str) -> BTreeMap<String, String> {
    serde_json::from_str(text).unwrap_or_default()
}
