//! The server functions of one sandbox: a few lines over [`crate::backend`]. The session and the
//! origin of the request were checked before they run.

use leptos::prelude::*;
use osb_protocol::{SandboxId, WireTime};

use crate::{
    error::ConsoleError,
    view::{Answer, Reach, SandboxDetail},
};

/// One sandbox.
#[server(prefix = "/console/fn", endpoint = "sandboxes/get")]
pub async fn detail(id: SandboxId) -> Result<SandboxDetail, ConsoleError> {
    crate::backend::backend()?.sandbox(&id).await
}

/// Sets the expiry of a sandbox to that many seconds from now; to an earlier one only with `shorten`.
#[server(prefix = "/console/fn", endpoint = "sandboxes/renew")]
pub async fn renew(
    id: SandboxId,
    seconds: i64,
    #[server(default)] shorten: bool,
) -> Result<WireTime, ConsoleError> {
    let expires_at = crate::view::in_seconds(seconds)?;
    let backend = crate::backend::backend()?;
    backend.renew(&id, expires_at, shorten).await
}

/// Sets and deletes labels of a sandbox; the others stay.
#[server(prefix = "/console/fn", endpoint = "sandboxes/labels")]
pub async fn change_labels(
    id: SandboxId,
    #[server(default)] set: Vec<(String, String)>,
    #[server(default)] deleted: Vec<String>,
) -> Result<Answer<()>, ConsoleError> {
    let deleted = deleted.into_iter().map(|name| (name, None));
    let set = set.into_iter().map(|(name, value)| (name, Some(value)));
    let patch = deleted.chain(set).collect();
    Answer::of(crate::backend::backend()?.change_labels(&id, patch).await)
}

/// Deletes a sandbox.
#[server(prefix = "/console/fn", endpoint = "sandboxes/delete")]
pub async fn delete(id: SandboxId) -> Result<(), ConsoleError> {
    crate::backend::backend()?.delete(&id).await
}

/// Pauses a sandbox.
#[server(prefix = "/console/fn", endpoint = "sandboxes/pause")]
pub async fn pause(id: SandboxId) -> Result<(), ConsoleError> {
    crate::backend::backend()?.pause(&id).await
}

/// Resumes a paused sandbox.
#[server(prefix = "/console/fn", endpoint = "sandboxes/resume")]
pub async fn resume(id: SandboxId) -> Result<(), ConsoleError> {
    crate::backend::backend()?.resume(&id).await
}

/// The address of a port of a sandbox. A sandbox without endpoints is a result, not an error:
/// browsers would log an error.
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
