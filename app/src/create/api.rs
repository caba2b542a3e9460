//! The server functions of the form: a few lines over [`crate::backend`]. The session and the origin
//! of the request were checked before they run.

use leptos::prelude::*;
use osb_protocol::FieldError;

use super::CreateForm;
use crate::{error::ConsoleError, view::Creation};

/// What the server's rules say about a form, without making anything.
#[server(prefix = "/console/fn", endpoint = "sandboxes/check")]
pub async fn check(form: CreateForm) -> Result<Vec<FieldError>, ConsoleError> {
    let request = form.request();
    let rules = crate::backend::backend()?.validate(&request.body);
    Ok(form.problems(request.problems, rules))
}

/// Makes a sandbox. A form with mistakes is no error of the call: browsers would log it as one.
#[server(prefix = "/console/fn", endpoint = "sandboxes/create")]
pub async fn create(form: CreateForm) -> Result<Creation, ConsoleError> {
    match form.submit(&*crate::backend::backend()?).await {
        Ok(id) => Ok(Creation::Made(id)),
        Err(ConsoleError::Invalid { problems }) => Ok(Creation::Invalid(problems)),
        Err(ConsoleError::Refused { message }) => Ok(Creation::Refused(message)),
        Err(error) => Err(error),
    }
}
