//! Users and API keys of the store.
//!
//! Requests are answered from memory. Changes of this process show at once; those of another one, such
//! as `opensandbox-server user reset` beside a running server, within [`FOLLOW`].

use std::{
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use osb_protocol::{
    FieldError, WireTime,
    error::code,
    identity::{ApiKey, IssuedApiKey, NewApiKey, NewUser, User},
};
use osb_service::{ErrorChain, Supervisor};
use osb_store::{ApiKeyRow, Store, StoreError, UserChange, UserRow};
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, MissedTickBehavior, interval},
};
use tracing::warn;

pub use super::index::UserEntry;
use super::{
    Principal, Validity, credential,
    index::{self, Index},
    now,
    password::{HashError, Passwords},
    rules, secret,
};

/// How often changes of other processes are looked for.
pub const FOLLOW: Duration = Duration::from_secs(1);
/// How often uses of keys are stored.
const STORE_USES: Duration = Duration::from_secs(60);

/// Users and API keys. Clones share them.
#[derive(Clone)]
pub struct Accounts(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    /// Whether the server has tenants, so that every account but an administrator's has one.
    has_tenants: bool,
    index: RwLock<Arc<Index>>,
    /// Changes and reloads happen one at a time, so that an older view never replaces a newer one.
    edit: Mutex<()>,
    passwords: Passwords,
    /// Whether there ever was a user or key while this process runs.
    used: AtomicBool,
    /// Ends with the first user or key.
    no_account: Validity,
    /// Notified of changes that may end sessions.
    session_ends: Arc<watch::Sender<()>>,
}

impl std::fmt::Debug for Accounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Accounts")
    }
}

/// Why a user or key was not changed.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// Fields break rules.
    #[error("{}", .0.iter().map(|it| format!("{}: {}", it.field(), it.msg)).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<FieldError>),
    /// Another user has the name.
    #[error("a user named {0} exists")]
    NameTaken(String),
    /// There is no such user.
    #[error("no such user")]
    NoUser,
    /// There is no such key.
    #[error("no such API key")]
    NoKey,
    /// The password could not be hashed.
    #[error(transparent)]
    Hash(#[from] HashError),
    /// The store failed.
    #[error("the server cannot keep its state")]
    Store(#[from] StoreError),
}

impl AccountError {
    /// Code of the error, by which clients and the audit trail know it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => code::INVALID_PARAMETER,
            Self::NameTaken(_) => code::CONFLICT,
            Self::NoUser | Self::NoKey => code::NOT_FOUND,
            Self::Store(StoreError::Unavailable { .. }) => code::STORE_UNAVAILABLE,
            Self::Hash(_) | Self::Store(_) => code::UNKNOWN_ERROR,
        }
    }
}

/// Parts of a user that change. `None` keeps a value.
#[derive(Clone, Debug, Default)]
pub struct UserEdit {
    /// A new password.
    pub password: Option<SecretString>,
    /// A new role.
    pub role: Option<osb_protocol::identity::Role>,
    /// A new tenant, or none.
    pub tenant: Option<Option<String>>,
    /// Whether the user may not sign in.
    pub disabled: Option<bool>,
}

/// A user around a change.
#[derive(Clone, Debug)]
pub struct ChangedUser {
    /// As it was just before.
    pub before: User,
    /// As it is.
    pub after: User,
}

impl Accounts {
    /// Reads all users and keys.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn open(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        Self::open_with(store, false).await
    }

    /// Reads all users and keys of a server that may have tenants. Where it has, users and keys without
    /// one open nothing unless they are service administrators.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn open_with(store: Arc<dyn Store>, has_tenants: bool) -> Result<Self, StoreError> {
        let index = Index::new(store.accounts().await?, &Index::default(), has_tenants);
        let without = index.without_tenant();
        if has_tenants && !without.is_empty() {
            warn!(names = ?without, "these users and API keys have no tenant and do not work with [tenants]; add them again with one, or give a user a tenant");
        }
        Ok(Self(Arc::new(Inner {
            has_tenants,
            used: AtomicBool::new(!index.is_empty()),
            index: RwLock::new(Arc::new(index)),
            store,
            no_account: Validity::default(),
            edit: Mutex::default(),
            passwords: Passwords::default(),
            session_ends: Arc::default(),
        })))
    }

    /// Follows changes of other processes and stores uses of keys, until the tasks stop.
    pub fn start(&self, tasks: &Supervisor) {
        let (accounts, stopping) = (self.clone(), tasks.stopping().clone());
        tasks.spawn("accounts", async move {
            let mut follow = interval(FOLLOW);
            follow.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut stored = Instant::now();
            let mut is_failing = false;
            loop {
                tokio::select! {
                    () = stopping.cancelled() => break,
                    _ = follow.tick() => {}
                }
                let followed = tokio::select! {
                    () = stopping.cancelled() => break,
                    followed = accounts.follow() => followed,
                };
                if let (false, Err(error)) = (is_failing, &followed) {
                    warn!(error = %ErrorChain(error), "changes of users and API keys are not seen");
                }
                is_failing = followed.is_err();
                if stored.elapsed() >= STORE_USES {
                    accounts.store_uses().await;
                    stored = Instant::now();
                }
            }
            accounts.store_uses().await;
        });
    }

    /// Takes over changes that another process made, and ends what expired keys opened.
    async fn follow(&self) -> Result<(), StoreError> {
        if self.index().end_expired(now()) {
            self.0.session_ends.send_replace(());
        }
        let _one_at_a_time = self.0.edit.lock().await;
        self.catch_up().await
    }

    /// Reads the store again if it has changed. The caller holds the lock on edits.
    async fn catch_up(&self) -> Result<(), StoreError> {
        if self.0.store.accounts_revision().await? != self.index().revision {
            self.reload().await?;
        }
        Ok(())
    }

    async fn store_uses(&self) {
        let uses = self.index().new_uses();
        if uses.is_empty() {
            return;
        }
        match self.0.store.touch_keys(&uses).await {
            Ok(()) => self.index().uses_are_stored(&uses),
            Err(error) => {
                warn!(error = %ErrorChain(&error), "the last uses of API keys are not stored yet");
            }
        }
    }

    /// Reads the store again. The caller holds the lock on edits.
    async fn reload(&self) -> Result<(), StoreError> {
        let rows = self.0.store.accounts().await?;
        let index = Index::new(rows, &self.index(), self.0.has_tenants);
        if !index.is_empty() {
            self.0.used.store(true, Ordering::Release);
            self.0.no_account.end();
        }
        let index = Arc::new(index);
        let before = {
            let mut present = self.0.index.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *present, Arc::clone(&index))
        };
        before.end_missing_in(&index);
        self.0.session_ends.send_replace(());
        Ok(())
    }

    fn index(&self) -> Arc<Index> {
        // Replaced whole, so a panic elsewhere does not spoil it.
        let index = self.0.index.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&index)
    }

    /// Whether requests need authentication because there is, or was, a user or key. It stays so for
    /// as long as the process runs: the removal of the last key must not open the server.
    #[must_use]
    pub fn are_used(&self) -> bool {
        self.0.used.load(Ordering::Acquire)
    }

    /// Ends with the first user or key, as what was open to every client before.
    #[must_use]
    pub fn no_account(&self) -> &Validity {
        &self.0.no_account
    }

    /// Whether every account but a service administrator's needs a tenant.
    #[must_use]
    pub fn needs_tenant(&self) -> bool {
        self.0.has_tenants
    }

    /// Whether there is a user.
    #[must_use]
    pub fn has_users(&self) -> bool {
        self.index().has_users()
    }

    /// Notified of everything that may end sessions.
    #[must_use]
    pub fn session_ends(&self) -> &Arc<watch::Sender<()>> {
        &self.0.session_ends
    }

    /// The principal of a stored key by its secret.
    #[must_use]
    pub fn key(&self, secret: &[u8]) -> Option<Arc<Principal>> {
        let index = self.0.index.read().unwrap_or_else(PoisonError::into_inner);
        index.key(secret, now())
    }

    /// The principal of a stored key by its id, if the key works.
    #[must_use]
    pub fn key_by_id(&self, id: &str) -> Option<Arc<Principal>> {
        self.index().key_by_id(id, now())
    }

    /// A user who may sign in, by id.
    #[must_use]
    pub fn user(&self, id: &str) -> Option<Arc<UserEntry>> {
        self.index().user(id)
    }

    /// The name of an account as it is stored; `None` for a text that no account can have as its name.
    #[must_use]
    pub fn account_name(text: &str) -> Option<String> {
        rules::user_name(text).ok()
    }

    /// Checks a password. `None` for a wrong one, and for a user who does not exist or may not sign in.
    ///
    /// # Errors
    /// When the password cannot be hashed.
    pub async fn sign_in(
        &self,
        name: &str,
        password: SecretString,
    ) -> Result<Option<Arc<UserEntry>>, HashError> {
        let index = self.index();
        let row = index.user_row(&rules::normal_user_name(name));
        let hash = row.map(|row| row.password.clone());
        let is_right = self.0.passwords.verify(password, hash).await?;
        let id = row.filter(|_| is_right).map(|row| &row.id);
        Ok(id.and_then(|id| index.user(id)))
    }

    /// All users, by name.
    #[must_use]
    pub fn users(&self) -> Vec<User> {
        self.index().list_users()
    }

    /// All keys, newest first.
    #[must_use]
    pub fn keys(&self) -> Vec<ApiKey> {
        self.index().list_keys()
    }

    /// The id of a user by name.
    #[must_use]
    pub fn user_id(&self, name: &str) -> Option<String> {
        let name = rules::normal_user_name(name);
        self.index().user_row(&name).map(|row| row.id.clone())
    }

    /// Adds a user.
    ///
    /// # Errors
    /// When a field breaks a rule, the name is taken or the store fails.
    pub async fn add_user(&self, new: NewUser) -> Result<User, AccountError> {
        let NewUser {
            name,
            password,
            role,
            tenant,
        } = new;
        let password = SecretString::from(password);
        let mut wrong = Vec::new();
        let name = valid(rules::user_name(&name), &mut wrong);
        valid(rules::password(password.expose_secret()), &mut wrong);
        let tenant = rules::tenant(tenant.as_deref(), role, self.0.has_tenants);
        let tenant = valid(tenant, &mut wrong);
        let (Some(name), Some(tenant), true) = (name, tenant, wrong.is_empty()) else {
            return Err(AccountError::Invalid(wrong));
        };
        let password = self.0.passwords.hash(password).await?;
        let at = now();
        let row = UserRow {
            id: uuid::Uuid::new_v4().to_string(),
            name,
            password,
            role,
            tenant,
            disabled: false,
            created_at: at,
            password_changed_at: at,
        };
        let _one_at_a_time = self.0.edit.lock().await;
        if !self.0.store.add_user(&row).await? {
            return Err(AccountError::NameTaken(row.name));
        }
        self.reload().await?;
        Ok(index::user(&row))
    }

    /// Changes a user. A new password and a disabled user end the user's sessions for good.
    ///
    /// # Errors
    /// When there is no such user, a field breaks a rule or the store fails.
    pub async fn change_user(&self, id: &str, edit: UserEdit) -> Result<ChangedUser, AccountError> {
        let password = match edit.password {
            None => None,
            Some(password) => {
                rules::password(password.expose_secret()).map_err(one)?;
                Some((self.0.passwords.hash(password).await?, now()))
            }
        };
        let _one_at_a_time = self.0.edit.lock().await;
        // Another process may have changed the user since.
        self.catch_up().await?;
        let index = self.index();
        let known = index.user_row_by_id(id).ok_or(AccountError::NoUser)?;
        let tenant = if edit.role.is_some() || edit.tenant.is_some() {
            let role = edit.role.unwrap_or(known.role);
            let tenant = edit.tenant.as_ref().unwrap_or(&known.tenant);
            let tenant = rules::tenant(tenant.as_deref(), role, self.0.has_tenants);
            tenant.map_err(one)?
        } else {
            None
        };
        if edit
            .disabled
            .is_some_and(|disabled| disabled != known.disabled)
        {
            // While the user is disabled they open nothing; they must not open anything later.
            self.delete_sessions(id).await?;
        }
        // What is not asked for stays as it is, whatever another process makes of it meanwhile.
        let change = UserChange {
            password,
            role: edit.role,
            tenant: edit.tenant.map(|_| tenant),
            disabled: edit.disabled,
        };
        if !self.0.store.change_user(id, &change).await? {
            return Err(AccountError::NoUser);
        }
        self.reload().await?;
        let changed = self.index();
        let row = changed.user_row_by_id(id).ok_or(AccountError::NoUser)?;
        Ok(ChangedUser {
            before: index::user(known),
            after: index::user(row),
        })
    }

    /// Deletes the sessions of a user.
    async fn delete_sessions(&self, user: &str) -> Result<(), StoreError> {
        for session in self.0.store.sessions().await? {
            if credential::of_session(&session.data).is_some_and(|it| it.is_of_user(user)) {
                self.0.store.session_delete(&session.id).await?;
            }
        }
        Ok(())
    }

    /// Deletes a user, whose sessions end. Returns the user as it was.
    ///
    /// # Errors
    /// When there is no such user or the store fails.
    pub async fn delete_user(&self, id: &str) -> Result<User, AccountError> {
        let _one_at_a_time = self.0.edit.lock().await;
        self.catch_up().await?;
        let index = self.index();
        let known = index.user_row_by_id(id).ok_or(AccountError::NoUser)?;
        if !self.0.store.delete_user(id).await? {
            return Err(AccountError::NoUser);
        }
        self.reload().await?;
        Ok(index::user(known))
    }

    /// Makes a key. Only this answer has its secret.
    ///
    /// # Errors
    /// When a field breaks a rule or the store fails.
    pub async fn add_key(&self, new: NewApiKey) -> Result<IssuedApiKey, AccountError> {
        let at = now();
        let mut wrong = Vec::new();
        let name = valid(rules::key_name(&new.name), &mut wrong);
        let tenant = rules::tenant(new.tenant.as_deref(), new.role, self.0.has_tenants);
        let tenant = valid(tenant, &mut wrong);
        if new.expires_at.is_some_and(|expires| expires <= at) {
            let rule = "must be in the future";
            wrong.push(FieldError::body("value_error", ["expiresAt"], rule));
        }
        let (Some(name), Some(tenant), true) = (name, tenant, wrong.is_empty()) else {
            return Err(AccountError::Invalid(wrong));
        };
        let (secret, prefix) = secret::generate();
        let row = ApiKeyRow {
            id: uuid::Uuid::new_v4().to_string(),
            name,
            digest: secret::digest(secret.expose_secret().as_bytes()),
            prefix,
            role: new.role,
            tenant,
            created_at: at,
            expires_at: new.expires_at,
            last_used_at: None,
            revoked_at: None,
        };
        let _one_at_a_time = self.0.edit.lock().await;
        self.0.store.add_key(&row).await?;
        self.reload().await?;
        Ok(IssuedApiKey {
            key: index::key(&row),
            secret: secret.expose_secret().to_owned(),
        })
    }

    /// Revokes a key; returns it.
    ///
    /// # Errors
    /// When there is no such key or the store fails.
    pub async fn revoke_key(&self, id: &str) -> Result<ApiKey, AccountError> {
        let _one_at_a_time = self.0.edit.lock().await;
        if !self.0.store.revoke_key(id, now()).await? {
            return Err(AccountError::NoKey);
        }
        self.reload().await?;
        self.index().listed_key(id).ok_or(AccountError::NoKey)
    }
}

fn one(error: FieldError) -> AccountError {
    AccountError::Invalid(vec![error])
}

/// The value, or notes what is wrong with it.
fn valid<T>(checked: Result<T, FieldError>, wrong: &mut Vec<FieldError>) -> Option<T> {
    checked.map_err(|error| wrong.push(error)).ok()
}

/// When a lifetime that begins now ends.
#[must_use]
pub fn in_seconds(seconds: i64) -> Option<WireTime> {
    now().plus_seconds(seconds)
}

#[cfg(test)]
mod tests;
