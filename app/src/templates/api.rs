//! The server function of the form. The session, the role and the origin of the request were checked
//! before it runs.

use leptos::prelude::*;

use super::form::TemplateForm;
use crate::{error::ConsoleError, view::Answer};

/// Makes a template. Answers with its id.
#[server(prefix = "/console/fn", endpoint = "templates/create")]
pub async fn create(form: TemplateForm) -> Result<Answer<String>, ConsoleError> {
    Answer::of(form.submit(&*crate::backend::template_backend()?).await)
}
