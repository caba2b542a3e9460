//! Users, API keys and sessions for the page about access. The routes' roles are checked before; what
//! a page shows is decided here.

use std::sync::Arc;

use async_trait::async_trait;
use http::StatusCode;
use osb_app::{
    backend::AccessBackend,
    error::ConsoleError,
    view::{AccessView, AccountList, SessionEntry, UserEntry},
};
use osb_protocol::{
    error::code,
    identity::{
        ConsoleSession, IssuedApiKey, NewApiKey, NewUser, PrincipalKind, Role, User, UserPatch,
    },
};
use osb_service::ErrorChain;
use osb_store::{Store, StoreError};

use super::{
    super::{
        account_acts::{AccountActs, status_of},
        audited::Noted,
    },
    memory::Memory,
    session::{self, Admitted},
};
use crate::{
    identity::{AccountError, Authenticator, Principal, accounts::UserEdit, session_id},
    sandbox::{self, explain},
};

/// [`AccessBackend`] for one request.
pub(super) struct Access {
    store: Arc<dyn Store>,
    keys: Arc<Authenticator>,
    admitted: Admitted,
    noted: Noted,
    memory: Memory,
}

impl Access {
    pub(super) fn new(
        store: Arc<dyn Store>,
        keys: Arc<Authenticator>,
        admitted: Admitted,
        noted: Noted,
    ) -> Self {
        Self {
            store,
            keys,
            admitted,
            noted,
            memory: Memory::of_request(),
        }
    }

    fn acts(&self) -> AccountActs<'_> {
        AccountActs {
            accounts: self.keys.accounts(),
            noted: &self.noted,
        }
    }

    /// Whose sessions the caller sees: all, or only the caller's.
    fn owner(&self) -> Option<&Principal> {
        let principal = self.admitted.principal();
        (principal.role < Role::ServiceAdmin).then_some(principal)
    }

    /// The result of an act for a page. Forms are answered with a redirect in any case, so the act
    /// learns from here why it was refused.
    fn done<T>(&self, result: Result<T, AccountError>) -> Result<T, ConsoleError> {
        let failure = result.as_ref().err();
        self.noted
            .settle(failure.map(|error| (status_of(error), error.code())));
        result.map_err(refused)
    }

    async fn read(&self) -> AccessView {
        let principal = self.admitted.principal();
        let sessions = session::list(&*self.store, &self.keys, self.owner()).await;
        let sessions = sessions.map_err(unreadable);
        let open = sessions.as_deref().unwrap_or_default();
        let accounts = self.keys.accounts();
        let users = accounts.users().into_iter().map(|user| {
            let own = open
                .iter()
                .filter(|session| session.kind == PrincipalKind::User && session.name == user.name);
            UserEntry {
                last_used_at: own.map(|session| session.last_used_at).max(),
                user,
            }
        });
        let is_admin = principal.role == Role::ServiceAdmin;
        AccessView {
            accounts: match is_admin {
                true => Ok(AccountList {
                    users: users.collect(),
                    keys: accounts.keys(),
                    needs_tenant: accounts.needs_tenant(),
                }),
                false => Err(format!(
                    "Your role is {}: users and API keys are for the role service_admin.",
                    principal.role
                )),
            },
            sessions: sessions.map(|sessions| {
                let entry = |session: ConsoleSession| SessionEntry {
                    is_this: session.id == self.admitted.session(),
                    session,
                };
                sessions.into_iter().map(entry).collect()
            }),
            you: principal.identity(),
        }
    }
}

#[async_trait]
impl AccessBackend for Access {
    async fn access(&self) -> AccessView {
        self.memory.once("access".to_owned(), self.read()).await
    }

    async fn add_user(&self, new: NewUser) -> Result<User, ConsoleError> {
        self.done(self.acts().add_user(new).await)
    }

    async fn change_user(&self, id: &str, patch: UserPatch) -> Result<User, ConsoleError> {
        let edit = UserEdit {
            password: patch.password.map(Into::into),
            role: patch.role,
            tenant: patch
                .tenant
                .map(|tenant| Some(tenant).filter(|tenant| !tenant.is_empty())),
            disabled: patch.disabled,
        };
        self.done(self.acts().change_user(id, edit).await)
    }

    async fn delete_user(&self, id: &str) -> Result<(), ConsoleError> {
        self.done(self.acts().delete_user(id).await)
    }

    async fn add_key(&self, new: NewApiKey) -> Result<IssuedApiKey, ConsoleError> {
        self.done(self.acts().add_key(new).await)
    }

    async fn revoke_key(&self, id: &str) -> Result<(), ConsoleError> {
        self.done(self.acts().revoke_key(id).await)
    }

    async fn end_session(&self, id: &str) -> Result<(), ConsoleError> {
        self.noted.set_object(&session_id::shown(id), None);
        match session::revoke(&*self.store, &self.keys, id, self.owner()).await {
            Ok(Some(owner)) => {
                self.noted.note("name", owner);
                self.noted.settle(None);
                Ok(())
            }
            Ok(None) => {
                self.noted
                    .settle(Some((StatusCode::NOT_FOUND, code::NOT_FOUND)));
                Err(ConsoleError::Refused {
                    message: "This session is over already.".to_owned(),
                })
            }
            Err(error) => {
                let error = AccountError::Store(error);
                self.noted.settle(Some((status_of(&error), error.code())));
                Err(refused(error))
            }
        }
    }
}

fn unreadable(error: StoreError) -> String {
    let error = sandbox::Error::from(error);
    explain(ErrorChain(&error).to_string(), error.cause())
}

/// The error of an act as the page shows it.
fn refused(error: AccountError) -> ConsoleError {
    let message = match error {
        AccountError::Invalid(problems) => return ConsoleError::Invalid { problems },
        AccountError::NameTaken(name) => format!("A user named {name} exists already."),
        AccountError::NoUser => "This user does not exist any more.".to_owned(),
        AccountError::NoKey => "This API key does not exist.".to_owned(),
        AccountError::Hash(_) => "The password cannot be kept: an internal error.".to_owned(),
        AccountError::Store(error) => unreadable(error),
    };
    ConsoleError::Refused { message }
}
