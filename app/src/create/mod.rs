//! Creating a sandbox: the form, its request, the request as code, the page and its server
//! functions.

mod api;
mod form;
mod mirror;
mod page;
mod words;

pub use form::{CreateForm, Field, Lifetime, Request};
pub use page::{CreatePage, Draft};

use crate::lazy::{Part, part};

/// The page, loaded when it is first shown.
pub(crate) const PART: Part = part!(create, CreatePage);
