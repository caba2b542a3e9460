//! Creating a sandbox: the form, its request, the request as code, the page and its server
//! functions.

mod api;
mod code;
mod fields;
mod form;
mod mirror;
mod page;
mod state;
mod summary;
mod words;

pub use form::{CreateForm, Field, Lifetime, Request};
pub use page::CreatePage;
pub use state::Draft;

use crate::lazy::{Part, part};

/// The page, loaded when it is first shown.
pub(crate) const PART: Part = part!(create, CreatePage);
