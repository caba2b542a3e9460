//! The server functions of the tab. What execd refuses is a result, not an error: browsers would log
//! an error.

use leptos::prelude::*;
use osb_protocol::SandboxId;

use super::{Change, Opened, Saved};
use crate::error::ConsoleError;

type Answer<T> = Result<Result<T, String>, ConsoleError>;

/// What is at a path.
#[server(prefix = "/console/fn", endpoint = "files/open")]
pub async fn open(id: SandboxId, path: String, from: u64, as_bytes: bool) -> Answer<Opened> {
    let backend = super::backend::backend()?;
    answer(backend.open(&id, &path, from, as_bytes).await)
}

/// Replaces the text of a file.
#[server(prefix = "/console/fn", endpoint = "files/save")]
pub async fn save(
    id: SandboxId,
    path: String,
    text: String,
    stamp: Option<String>,
) -> Answer<Saved> {
    let backend = super::backend::backend()?;
    answer(backend.save(&id, &path, text, stamp).await)
}

/// Makes an empty file or a folder.
#[server(prefix = "/console/fn", endpoint = "files/make")]
pub async fn make(id: SandboxId, path: String, folder: bool) -> Answer<()> {
    let change = match folder {
        true => Change::NewFolder(path),
        false => Change::NewFile(path),
    };
    answer(super::backend::backend()?.change(&id, change).await)
}

/// Gives an entry another path.
#[server(prefix = "/console/fn", endpoint = "files/move")]
pub async fn move_to(id: SandboxId, from: String, to: String) -> Answer<()> {
    let change = Change::Move { from, to };
    answer(super::backend::backend()?.change(&id, change).await)
}

/// Removes an entry.
#[server(prefix = "/console/fn", endpoint = "files/remove")]
pub async fn remove(id: SandboxId, path: String) -> Answer<()> {
    let change = Change::Remove(path);
    answer(super::backend::backend()?.change(&id, change).await)
}

/// Sets permission bits.
#[server(prefix = "/console/fn", endpoint = "files/mode")]
pub async fn set_mode(id: SandboxId, path: String, mode: u32) -> Answer<()> {
    let change = Change::Mode(path, mode);
    answer(super::backend::backend()?.change(&id, change).await)
}

#[cfg(feature = "ssr")]
fn answer<T>(result: Result<T, ConsoleError>) -> Answer<T> {
    match result {
        Ok(done) => Ok(Ok(done)),
        Err(why @ (ConsoleError::Refused { .. } | ConsoleError::NotFound)) => {
            Ok(Err(why.to_string()))
        }
        Err(error) => Err(error),
    }
}
