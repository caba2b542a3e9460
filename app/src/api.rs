//! Server functions: what the hydrated pages call. Each is a few lines over [`crate::backend`];
//! the session and the origin of the request were checked before they run.

use leptos::prelude::*;
use osb_protocol::{FieldError, SandboxId, WireTime};

use crate::{
    create::CreateForm,
    error::ConsoleError,
    sandboxes::ListQuery,
    view::{Creation, Reach, SandboxDetail, SandboxList},
};

/// One page of the list.
#[server(prefix = "/console/fn", endpoint = "sandboxes/list")]
pub async fn list(query: ListQuery) -> Result<SandboxList, ConsoleError> {
    let backend = crate::backend::backend()?;
    let warning = backend.trouble();
    Ok(SandboxList {
        warning,
        ..query.select(backend.sandboxes())
    })
}

/// One sandbox.
#[server(prefix = "/console/fn", endpoint = "sandboxes/get")]
pub async fn detail(id: SandboxId) -> Result<SandboxDetail, ConsoleError> {
    crate::backend::backend()?.sandbox(&id).await
}

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

/// Lets a sandbox live for that many seconds from now.
#[server(prefix = "/console/fn", endpoint = "sandboxes/renew")]
pub async fn renew(id: SandboxId, seconds: i64) -> Result<WireTime, ConsoleError> {
    let expires_at = crate::view::in_seconds(seconds)?;
    crate::backend::backend()?.renew(&id, expires_at).await
}

/// Removes a sandbox.
#[server(prefix = "/console/fn", endpoint = "sandboxes/delete")]
pub async fn delete(id: SandboxId) -> Result<(), ConsoleError> {
    crate::backend::backend()?.delete(&id).await
}

/// Where a port of a sandbox is reached. A sandbox without endpoints is no error of the call:
/// browsers would log it as one.
#[server(prefix = "/console/fn", endpoint = "sandboxes/port")]
pub async fn port(id: SandboxId, port: u16) -> Result<Reach, ConsoleError> {
    match crate::backend::backend()?.port(&id, port).await {
        Ok(address) => Ok(Reach::At(address)),
        Err(why @ (ConsoleError::Refused { .. } | ConsoleError::NotFound)) => {
            Ok(Reach::Nowhere(why.to_string()))
        }
        Err(error) => Err(error),
    }
}
