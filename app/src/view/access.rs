//! Data of the page about users, API keys and sessions.

use osb_protocol::{
    FieldError, WireTime,
    identity::{ApiKey, ConsoleSession, Identity, User},
};
use serde::{Deserialize, Serialize};

use crate::error::ConsoleError;

/// What the page shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessView {
    /// Who is signed in.
    pub you: Identity,
    /// Users and keys, or why the caller may not see them.
    pub accounts: Result<AccountList, String>,
    /// Open sessions, or why they are not known: all of them for a service administrator, otherwise
    /// those of the caller.
    pub sessions: Result<Vec<SessionEntry>, String>,
}

/// Users and keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountList {
    /// Users, by name.
    pub users: Vec<UserEntry>,
    /// Keys, newest first, revoked and expired ones included.
    pub keys: Vec<ApiKey>,
    /// Whether every account but a service administrator's needs a tenant.
    pub needs_tenant: bool,
}

/// A user, with the last use of the sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserEntry {
    /// The user.
    pub user: User,
    /// Last use of an open session.
    pub last_used_at: Option<WireTime>,
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEntry {
    /// The session.
    pub session: ConsoleSession,
    /// Whether the page was asked for in it.
    pub is_this: bool,
}

/// The answer to a form. What is wrong with a form is an answer and no error: browsers log errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer<T> {
    /// It was done.
    Done(T),
    /// Nothing was done: these fields break rules.
    Invalid(Vec<FieldError>),
    /// Nothing was done, for this reason.
    Refused(String),
}

impl<T> Answer<T> {
    /// Takes refusals into the answer.
    ///
    /// # Errors
    /// Those that have nothing to do with the form.
    pub fn of(result: Result<T, ConsoleError>) -> Result<Self, ConsoleError> {
        match result {
            Ok(done) => Ok(Self::Done(done)),
            Err(ConsoleError::Invalid { problems }) => Ok(Self::Invalid(problems)),
            Err(ConsoleError::Refused { message }) => Ok(Self::Refused(message)),
            Err(error) => Err(error),
        }
    }
}
