//! Server functions of the form, over [`crate::backend`]. The session and the origin
//! of the request were checked before they run.

use leptos::prelude::*;
use osb_protocol::{FieldError, SandboxId};

use super::CreateForm;
use crate::{
    error::ConsoleError,
    view::{Creation, HostImages, Original},
};

/// Checks a form against the server's rules, without creating anything.
#[server(prefix = "/console/fn", endpoint = "sandboxes/check")]
pub async fn check(form: CreateForm) -> Result<Vec<FieldError>, ConsoleError> {
    let request = form.request();
    let rules = crate::backend::backend()?.validate(&request.body);
    Ok(form.problems(request.problems, rules))
}

/// Creates a sandbox. An invalid form is a result, not an error: browsers would log an error.
#[server(prefix = "/console/fn", endpoint = "sandboxes/create")]
pub async fn create(form: CreateForm) -> Result<Creation, ConsoleError> {
    match form.submit(&*crate::backend::backend()?).await {
        Ok(id) => Ok(Creation::Made(id)),
        Err(ConsoleError::Invalid { problems }) => Ok(Creation::Invalid(problems)),
        Err(ConsoleError::Refused { message }) => Ok(Creation::Refused(message)),
        Err(error) => Err(error),
    }
}

/// The images on the host, as far as the caller may know them.
#[server(prefix = "/console/fn", endpoint = "sandboxes/images")]
pub async fn images() -> Result<HostImages, ConsoleError> {
    Ok(crate::backend::backend()?.images().await)
}

/// What a copy of a sandbox begins with. Of variables only the names.
#[server(prefix = "/console/fn", endpoint = "sandboxes/original")]
pub async fn read_original(id: SandboxId) -> Result<Original, ConsoleError> {
    crate::backend::backend()?.original(&id).await
}
