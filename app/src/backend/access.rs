//! Users, API keys and sessions as the console sees them.

use std::sync::Arc;

use async_trait::async_trait;
use leptos::prelude::use_context;
use osb_protocol::identity::{IssuedApiKey, NewApiKey, NewUser, User, UserPatch};

use crate::{error::ConsoleError, view::AccessView};

/// What the page about access asks the server for. The server checks the caller's role for each call.
#[async_trait]
pub trait AccessBackend: Send + Sync {
    /// What the page shows.
    async fn access(&self) -> AccessView;

    /// Adds a user.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    async fn add_user(&self, new: NewUser) -> Result<User, ConsoleError>;

    /// Changes a user. An empty tenant stands for none.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    async fn change_user(&self, id: &str, patch: UserPatch) -> Result<User, ConsoleError>;

    /// Deletes a user, whose sessions end.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`].
    async fn delete_user(&self, id: &str) -> Result<(), ConsoleError>;

    /// Makes a key. Only this answer has its secret.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    async fn add_key(&self, new: NewApiKey) -> Result<IssuedApiKey, ConsoleError>;

    /// Revokes a key.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`].
    async fn revoke_key(&self, id: &str) -> Result<(), ConsoleError>;

    /// Ends a session by its public id. Callers other than service administrators end their own only.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`].
    async fn end_session(&self, id: &str) -> Result<(), ConsoleError>;
}

/// The accounts for this request.
///
/// # Errors
/// [`ConsoleError::SignedOut`]: the server provides none without an open session.
pub fn access_backend() -> Result<Arc<dyn AccessBackend>, ConsoleError> {
    use_context::<Arc<dyn AccessBackend>>().ok_or(ConsoleError::SignedOut)
}
