//! What the pages about templates, the page of a sandbox and the create form share: server functions and
//! words.

mod api;
mod badge;
mod words;

pub(crate) use api::{delete, list, offered, read};
pub(crate) use badge::TemplateBadge;
#[cfg(test)]
pub(crate) use words::sample;
pub(crate) use words::{address, hindrance, is_under_way, offers_templates, reason, size};

pub(crate) use crate::view::template_short as short;
