//! Templates for the console: more than the API shows of them.

use std::collections::BTreeMap;

use osb_protocol::{
    FieldError, WireTime,
    lifecycle::{TemplatePhase, TemplateSpec},
};
use osb_store::TemplateRow;
use serde_json::Value;

use super::{TemplateListQuery, source};
use crate::sandbox::{Error, Service, TemplateError, validate};

/// Label that is a template's name.
const NAME: &str = "name";

/// A template with the size of its image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateEntry {
    /// Its id.
    pub id: String,
    /// What it is made from, and what its sandboxes run.
    pub spec: TemplateSpec,
    /// Its labels.
    pub metadata: BTreeMap<String, String>,
    /// Its phase.
    pub phase: TemplatePhase,
    /// What the runtime calls its image.
    pub image: Option<String>,
    /// Why it failed.
    pub message: Option<String>,
    /// Bytes of the image, if it was built.
    pub size_bytes: Option<u64>,
    /// When it was accepted.
    pub created_at: WireTime,
    /// Since when it is in its phase.
    pub changed_at: WireTime,
}

impl TemplateEntry {
    /// Its label `name`, unless that is blank.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let name = self.metadata.get(NAME).map(|name| name.trim());
        name.filter(|name| !name.is_empty())
    }
}

impl From<TemplateRow> for TemplateEntry {
    fn from(row: TemplateRow) -> Self {
        let spec = serde_json::from_str(&row.spec);
        Self {
            id: row.id,
            spec: spec.unwrap_or_else(|_| source::empty_spec()),
            metadata: row.metadata,
            phase: row.phase,
            image: row.image,
            message: row.message,
            size_bytes: row.size_bytes,
            created_at: row.created_at,
            changed_at: row.changed_at,
        }
    }
}

impl Service {
    /// Every rule that a request to make a template breaks. None where the runtime has no templates.
    #[must_use]
    pub fn template_problems(&self, body: Value) -> Vec<FieldError> {
        let Ok(rules) = self.template_rules() else {
            return Vec::new();
        };
        let checked = validate::template(body, &rules);
        checked
            .err()
            .map(|error| error.fields())
            .unwrap_or_default()
    }

    /// A page of templates, newest first, and how many there are. Those that were deleted are among them
    /// while their image is still needed.
    ///
    /// # Errors
    /// When the runtime has none, and when the store cannot be read.
    pub async fn template_entries(
        &self,
        query: TemplateListQuery,
    ) -> Result<(Vec<TemplateEntry>, usize), Error> {
        self.templates()?;
        let (rows, total) = self.template_rows(query, true).await?;
        Ok((rows.into_iter().map(TemplateEntry::from).collect(), total))
    }

    /// One template; `None` if there is none with this id.
    ///
    /// # Errors
    /// When the runtime has none, and when the store cannot be read.
    pub async fn template_entry(&self, id: &str) -> Result<Option<TemplateEntry>, Error> {
        self.templates()?;
        match self.template_row(id).await {
            Ok(row) => Ok(Some(row.into())),
            Err(Error::Template(TemplateError::NotFound(_))) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
