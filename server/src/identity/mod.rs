//! Who acts, and how far: principals, their roles and tenants.
//!
//! ```text
//!  request key ─▶ Authenticator ─▶ configured key │ Accounts (stored keys) │ Tenants ─▶ Principal
//!  name and password ─▶ Accounts ─▶ session ─▶ Principal
//! ```
//!
//! * [`principal`]: the actor of a request, its role and its scope.
//! * [`authenticator`]: which principal an API key belongs to. Answers from memory, except for keys of
//!   an HTTP tenant provider.
//! * [`credential`]: what a session of the console was opened with. [`session`]: opening and resuming.
//! * [`accounts`]: users and API keys of the store, in memory and as an administrator changes them.
//! * [`secret`], [`password`]: how both are made and recognised. [`rules`]: what they may look like.
//! * [`tenants`]: keys of tenants, from a file or an HTTP provider.
//! * [`server_proof`]: how a server shows that it is the one of a store.

pub mod accounts;
pub mod authenticator;
pub mod credential;
mod index;
mod password;
pub mod principal;
mod rules;
mod secret;
pub mod server_proof;
mod session;
pub mod session_id;
pub mod tenants;

pub use accounts::{AccountError, Accounts};
pub use authenticator::Authenticator;
pub use credential::Credential;
pub use principal::{Denied, Principal, Scope, Validity};
pub use secret::redact_keys;
pub use tenants::Tenants;

use osb_protocol::WireTime;

/// The present moment.
fn now() -> WireTime {
    crate::wall_clock::now()
}
