//! Templates as the console sees them.

use std::sync::Arc;

use async_trait::async_trait;
use leptos::prelude::use_context;
use osb_protocol::FieldError;
use serde_json::Value;

use crate::{
    error::ConsoleError,
    view::{OfferedTemplates, TemplateDetail, TemplateList},
};

/// What the pages about templates ask the server for.
#[async_trait]
pub trait TemplateBackend: Send + Sync {
    /// One page of the templates, from 1.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`] when they cannot be read, or the runtime has none.
    async fn templates(&self, page: usize) -> Result<TemplateList, ConsoleError>;

    /// One template with the log of its build; `None` if there is none with this id.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`] when it cannot be read, or the runtime has none.
    async fn template(&self, id: &str) -> Result<Option<TemplateDetail>, ConsoleError>;

    /// The templates that a sandbox can be created from. None on a runtime without templates.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`] when they cannot be read.
    async fn offered(&self) -> Result<OfferedTemplates, ConsoleError>;

    /// Accepts a request of the API to make a template, whose page shows the progress. Returns its id.
    /// With fields of the form that could not be read nothing is made, and the other rules that are broken
    /// are reported too.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    async fn create(
        &self,
        body: Value,
        unreadable: Vec<FieldError>,
    ) -> Result<String, ConsoleError>;

    /// Deletes a template.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`], which names the sandboxes that were created from it if that is why.
    async fn delete(&self, id: &str) -> Result<(), ConsoleError>;
}

/// The templates for this request.
///
/// # Errors
/// [`ConsoleError::SignedOut`]: the server provides none without an open session.
pub fn template_backend() -> Result<Arc<dyn TemplateBackend>, ConsoleError> {
    use_context::<Arc<dyn TemplateBackend>>().ok_or(ConsoleError::SignedOut)
}
