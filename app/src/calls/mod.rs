//! What the console does, as calls of the API in four languages: a create request, and the acts on a
//! sandbox.

mod act;
mod language;
mod request;
mod tabs;

pub(crate) use act::Call;
pub(crate) use language::{Language, Target};
pub(crate) use request::create;
pub(crate) use tabs::LanguageTabs;
