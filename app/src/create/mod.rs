//! Making a sandbox: the form, the request it stands for, the same request as code, the page, and
//! what it calls on the server.

mod api;
mod form;
mod mirror;
mod page;
mod words;

pub use form::{CreateForm, Field, Lifetime, Request};
pub use page::{CreatePage, Draft};
