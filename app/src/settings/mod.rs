//! What the server is, how it stands, and how it is configured.

mod api;
mod config;
mod look;
mod page;
mod store;
mod webhooks;

use page::SettingsPage;

use crate::lazy::{Part, part};

/// The page, loaded when it is first shown.
pub(crate) const PART: Part = part!(settings, SettingsPage);
