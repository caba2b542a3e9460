//! The server functions of the tab. What execd refuses is a result, not an error: browsers would log
//! an error.

use leptos::prelude::*;
use osb_protocol::{SandboxId, execd::file::Found};

use super::{Asked, Change, Opened, Replaced, Saved};
use crate::error::ConsoleError;

type Answer<T> = Result<Result<T, String>, ConsoleError>;

/// What is at a path.
#[server(prefix = "/console/fn", endpoint = "files/open")]
pub async fn open(id: SandboxId, path: String, from: u64, as_bytes: bool) -> Answer<Opened> {
    let backend = super::backend::backend()?;
    answer(backend.open(&id, &path, from, as_bytes).await)
}

/// What is below a folder.
#[server(prefix = "/console/fn", endpoint = "files/find")]
pub async fn find(
    id: SandboxId,
    path: String,
    name: String,
    text: String,
    case: bool,
) -> Answer<Found> {
    let asked = Asked { name, text, case };
    answer(super::backend::backend()?.find(&id, &path, &asked).await)
}

/// Which of these paths below a folder exist. `below` has them with a NUL after each.
#[server(prefix = "/console/fn", endpoint = "files/taken")]
pub async fn taken(id: SandboxId, folder: String, below: String) -> Answer<Vec<String>> {
    let below: Vec<&str> = below.split_terminator('\0').collect();
    answer(super::backend::backend()?.taken(&id, &folder, &below).await)
}

/// Replaces a text in files below a folder. `paths` has a NUL after each.
#[server(prefix = "/console/fn", endpoint = "files/replace")]
pub async fn replace(
    id: SandboxId,
    folder: String,
    paths: String,
    old: String,
    new: String,
) -> Answer<Replaced> {
    let paths: Vec<&str> = paths.split_terminator('\0').collect();
    let backend = super::backend::backend()?;
    answer(backend.replace(&id, &folder, &paths, &old, &new).await)
}

/// Replaces the text of a file that has this stamp; without one, writes a file where nothing is.
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
