//! Server functions of the page. The session, the role and the origin of the request were checked before
//! they run.

use leptos::prelude::*;
use osb_protocol::identity::{IssuedApiKey, User};

use super::{KeyForm, PasswordForm, UserChangeForm, UserForm};
use crate::{
    error::ConsoleError,
    view::{AccessView, Answer},
};

/// What the page shows.
#[server(prefix = "/console/fn", endpoint = "access/get")]
pub async fn read_access() -> Result<AccessView, ConsoleError> {
    Ok(crate::backend::access_backend()?.access().await)
}

/// Adds a user.
#[server(prefix = "/console/fn", endpoint = "access/add-user")]
pub async fn add_user(form: UserForm) -> Result<Answer<User>, ConsoleError> {
    Answer::of(form.submit(&*crate::backend::access_backend()?).await)
}

/// Changes role, tenant and whether a user may sign in.
#[server(prefix = "/console/fn", endpoint = "access/change-user")]
pub async fn change_user(id: String, form: UserChangeForm) -> Result<Answer<User>, ConsoleError> {
    Answer::of(form.submit(&id, &*crate::backend::access_backend()?).await)
}

/// Sets the password of a user, whose sessions end.
#[server(prefix = "/console/fn", endpoint = "access/set-password")]
pub async fn set_password(id: String, form: PasswordForm) -> Result<Answer<User>, ConsoleError> {
    Answer::of(form.submit(&id, &*crate::backend::access_backend()?).await)
}

/// Deletes a user.
#[server(prefix = "/console/fn", endpoint = "access/delete-user")]
pub async fn delete_user(id: String) -> Result<Answer<()>, ConsoleError> {
    Answer::of(crate::backend::access_backend()?.delete_user(&id).await)
}

/// Makes a key. Only this answer has its secret.
#[server(prefix = "/console/fn", endpoint = "access/add-key")]
pub async fn add_key(form: KeyForm) -> Result<Answer<IssuedApiKey>, ConsoleError> {
    Answer::of(form.submit(&*crate::backend::access_backend()?).await)
}

/// Revokes a key.
#[server(prefix = "/console/fn", endpoint = "access/revoke-key")]
pub async fn revoke_key(id: String) -> Result<Answer<()>, ConsoleError> {
    Answer::of(crate::backend::access_backend()?.revoke_key(&id).await)
}

/// Ends a session.
#[server(prefix = "/console/fn", endpoint = "access/end-session")]
pub async fn end_session(id: String) -> Result<Answer<()>, ConsoleError> {
    Answer::of(crate::backend::access_backend()?.end_session(&id).await)
}
