//! Changes of users and API keys, with what the audit trail records of them. The REST API and the console
//! share them.

use http::StatusCode;
use osb_protocol::identity::{ApiKey, IssuedApiKey, NewApiKey, NewUser, User};
use osb_store::StoreError;
use serde_json::{Map, Value};

use super::audited::Noted;
use crate::{
    audit::facts,
    identity::{
        AccountError, Accounts,
        accounts::{ChangedUser, UserEdit},
    },
};

/// The status that says why an account was not changed.
pub(super) fn status_of(error: &AccountError) -> StatusCode {
    match error {
        AccountError::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
        AccountError::NameTaken(_) => StatusCode::CONFLICT,
        AccountError::NoUser | AccountError::NoKey => StatusCode::NOT_FOUND,
        AccountError::Store(StoreError::Unavailable { .. }) => StatusCode::SERVICE_UNAVAILABLE,
        AccountError::Hash(_) | AccountError::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Changes accounts for one request.
pub(super) struct AccountActs<'a> {
    /// The accounts.
    pub(super) accounts: &'a Accounts,
    /// The act of the request.
    pub(super) noted: &'a Noted,
}

impl AccountActs<'_> {
    /// Adds a user, see [`Accounts::add_user`].
    pub(super) async fn add_user(&self, new: NewUser) -> Result<User, AccountError> {
        self.noted.note_all(facts::of_account(&new.name, new.role));
        let user = self.accounts.add_user(new).await?;
        self.noted.set_object(&user.id, user.tenant.as_deref());
        Ok(user)
    }

    /// Changes a user, see [`Accounts::change_user`].
    pub(super) async fn change_user(&self, id: &str, edit: UserEdit) -> Result<User, AccountError> {
        self.noted.set_object(id, None);
        let sets_password = edit.password.is_some();
        let ChangedUser { before, after } = self.accounts.change_user(id, edit).await?;
        let facts = facts::of_user_change(&before, &after, sets_password);
        self.note_user(&after, facts);
        Ok(after)
    }

    /// Deletes a user, see [`Accounts::delete_user`].
    pub(super) async fn delete_user(&self, id: &str) -> Result<(), AccountError> {
        self.noted.set_object(id, None);
        let user = self.accounts.delete_user(id).await?;
        self.note_user(&user, facts::of_account(&user.name, user.role));
        Ok(())
    }

    /// Makes a key, see [`Accounts::add_key`].
    pub(super) async fn add_key(&self, new: NewApiKey) -> Result<IssuedApiKey, AccountError> {
        self.noted.note_all(facts::of_account(&new.name, new.role));
        let issued = self.accounts.add_key(new).await?;
        self.note_key(&issued.key);
        Ok(issued)
    }

    /// Revokes a key, see [`Accounts::revoke_key`].
    pub(super) async fn revoke_key(&self, id: &str) -> Result<(), AccountError> {
        self.noted.set_object(id, None);
        let key = self.accounts.revoke_key(id).await?;
        self.note_key(&key);
        Ok(())
    }

    fn note_user(&self, user: &User, facts: Map<String, Value>) {
        self.noted.set_object(&user.id, user.tenant.as_deref());
        self.noted.note_all(facts);
    }

    fn note_key(&self, key: &ApiKey) {
        self.noted.set_object(&key.id, key.tenant.as_deref());
        self.noted.note_all(facts::of_key(key));
    }
}
