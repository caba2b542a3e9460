//! The files of sandboxes as the tab sees them. The server implements this over execd.

use std::sync::Arc;

use async_trait::async_trait;
use leptos::prelude::use_context;
use osb_protocol::{SandboxId, execd::file::Found};

use super::{Asked, Change, Opened, Replaced, Saved};
use crate::error::ConsoleError;

/// What the tab asks for. Paths are absolute.
#[async_trait]
pub trait FileBackend: Send + Sync {
    /// What is at a path: entries of a folder from number `from` on, or a part of a file from byte
    /// `from` on, as bytes if it is no text or `as_bytes` says so.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] without the sandbox, and [`ConsoleError::Refused`].
    async fn open(
        &self,
        id: &SandboxId,
        path: &str,
        from: u64,
        as_bytes: bool,
    ) -> Result<Opened, ConsoleError>;

    /// What is below a folder, within limits.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] without the sandbox, and [`ConsoleError::Refused`].
    async fn find(&self, id: &SandboxId, path: &str, asked: &Asked) -> Result<Found, ConsoleError>;

    /// Those of the paths below a folder where something is.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] without the sandbox, and [`ConsoleError::Refused`].
    async fn taken(
        &self,
        id: &SandboxId,
        folder: &str,
        below: &[&str],
    ) -> Result<Vec<String>, ConsoleError>;

    /// Replaces a text in files that were found below a folder.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] without the sandbox, and [`ConsoleError::Refused`].
    async fn replace(
        &self,
        id: &SandboxId,
        folder: &str,
        paths: &[&str],
        old: &str,
        new: &str,
    ) -> Result<Replaced, ConsoleError>;

    /// Replaces the text of a file that had this stamp when it was read. With `None`, writes a file
    /// where nothing is.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] without the sandbox, and [`ConsoleError::Refused`].
    async fn save(
        &self,
        id: &SandboxId,
        path: &str,
        text: String,
        stamp: Option<String>,
    ) -> Result<Saved, ConsoleError>;

    /// Makes, moves or removes something.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] without the sandbox, and [`ConsoleError::Refused`].
    async fn change(&self, id: &SandboxId, change: Change) -> Result<(), ConsoleError>;
}

/// The backend of this request.
///
/// # Errors
/// [`ConsoleError::SignedOut`]: the server provides none without an open session.
pub(super) fn backend() -> Result<Arc<dyn FileBackend>, ConsoleError> {
    use_context::<Arc<dyn FileBackend>>().ok_or(ConsoleError::SignedOut)
}
