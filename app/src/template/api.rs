//! The server functions of templates. The session, the role and the origin of the request were checked
//! before they run.

use leptos::prelude::*;

use crate::{
    error::ConsoleError,
    view::{Answer, OfferedTemplates, TemplateDetail, TemplateList},
};

/// One page of the list.
#[server(prefix = "/console/fn", endpoint = "templates/list")]
pub async fn list(page: usize) -> Result<TemplateList, ConsoleError> {
    crate::backend::template_backend()?.templates(page).await
}

/// One template. That there is none is an answer and no error: browsers log errors.
#[server(prefix = "/console/fn", endpoint = "templates/get")]
pub async fn read(id: String) -> Result<Option<TemplateDetail>, ConsoleError> {
    crate::backend::template_backend()?.template(&id).await
}

/// The templates that a sandbox can be created from.
#[server(prefix = "/console/fn", endpoint = "templates/offered")]
pub async fn offered() -> Result<OfferedTemplates, ConsoleError> {
    crate::backend::template_backend()?.offered().await
}

/// Deletes a template.
#[server(prefix = "/console/fn", endpoint = "templates/delete")]
pub async fn delete(id: String) -> Result<Answer<()>, ConsoleError> {
    Answer::of(crate::backend::template_backend()?.delete(&id).await)
}
