//! The forms as browsers send them, with and without script.

use serde::{Deserialize, Serialize};
#[cfg(feature = "ssr")]
use {
    crate::{backend::AccessBackend, error::ConsoleError, view::in_seconds},
    osb_protocol::{
        FieldError,
        identity::{IssuedApiKey, NewApiKey, NewUser, Role, User, UserPatch},
    },
};

/// Lifetimes that the form of a key offers: days as the form sends them, and in words.
pub(super) const LIFETIMES: [(&str, &str); 6] = [
    ("1", "1 day"),
    ("7", "7 days"),
    ("30", "30 days"),
    ("90", "90 days"),
    ("365", "1 year"),
    ("", "Never"),
];

/// A key to make.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyForm {
    name: String,
    role: String,
    tenant: String,
    /// Days until it expires; empty for never.
    days: String,
}

/// A user to add.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UserForm {
    name: String,
    password: String,
    role: String,
    tenant: String,
}

/// What a user may do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UserChangeForm {
    role: String,
    tenant: String,
    /// Only sent if it is so.
    disabled: bool,
}

/// A new password of a user.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PasswordForm {
    password: String,
}

impl std::fmt::Debug for UserForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserForm")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for PasswordForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordForm")
    }
}

#[cfg(feature = "ssr")]
fn wrong(field: &str, rule: String) -> ConsoleError {
    ConsoleError::Invalid {
        problems: vec![FieldError::body("value_error", [field], rule)],
    }
}

#[cfg(feature = "ssr")]
fn role(text: &str) -> Result<Role, ConsoleError> {
    text.parse()
        .map_err(|error: osb_protocol::identity::NotARole| wrong("role", error.to_string()))
}

#[cfg(feature = "ssr")]
fn tenant(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(feature = "ssr")]
impl KeyForm {
    /// Makes the key.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    pub async fn submit(&self, backend: &dyn AccessBackend) -> Result<IssuedApiKey, ConsoleError> {
        let expires_at = match self.days.trim() {
            "" => None,
            days => {
                let rule = || {
                    wrong(
                        "days",
                        "must be a whole number of days, or empty".to_owned(),
                    )
                };
                let days = days.parse::<u32>().map_err(|_| rule())?;
                Some(in_seconds(i64::from(days) * 86_400)?)
            }
        };
        let new = NewApiKey {
            name: self.name.clone(),
            role: role(&self.role)?,
            tenant: tenant(&self.tenant),
            expires_at,
        };
        backend.add_key(new).await
    }
}

#[cfg(feature = "ssr")]
impl UserForm {
    /// Adds the user.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    pub async fn submit(self, backend: &dyn AccessBackend) -> Result<User, ConsoleError> {
        let new = NewUser {
            role: role(&self.role)?,
            tenant: tenant(&self.tenant),
            name: self.name,
            password: self.password,
        };
        backend.add_user(new).await
    }
}

#[cfg(feature = "ssr")]
impl UserChangeForm {
    /// Changes the user with this id.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    pub async fn submit(
        &self,
        id: &str,
        backend: &dyn AccessBackend,
    ) -> Result<User, ConsoleError> {
        let patch = UserPatch {
            password: None,
            role: Some(role(&self.role)?),
            tenant: Some(self.tenant.trim().to_owned()),
            disabled: Some(self.disabled),
        };
        backend.change_user(id, patch).await
    }
}

#[cfg(feature = "ssr")]
impl PasswordForm {
    /// Sets the password of the user with this id.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    pub async fn submit(self, id: &str, backend: &dyn AccessBackend) -> Result<User, ConsoleError> {
        let patch = UserPatch {
            password: Some(self.password),
            ..UserPatch::default()
        };
        backend.change_user(id, patch).await
    }
}
