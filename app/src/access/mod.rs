//! Who may use the server: users, API keys and open sessions.

mod api;
mod confirm;
mod forms;
mod issued;
mod keys;
mod page;
mod role_field;
mod sessions;
mod shown;
mod users;

pub use forms::{KeyForm, PasswordForm, UserChangeForm, UserForm};
pub use issued::Issued;
use page::AccessPage;

use crate::lazy::{Part, part};

/// The page, loaded when it is first shown.
pub(crate) const PART: Part = part!(access, AccessPage);
