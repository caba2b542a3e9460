//! The run tab: a command with its output as it comes, and what ran in the sandbox before.
//!
//! ```text
//! page ── /console/run/{sandbox} ──── server ── execd POST /command
//! page ── /console/output/{sandbox} ─ server ── execd GET /command/{id}/events, /command/{id}/logs
//! ```
//!
//! A command goes on when its page is left; the list then still shows how it ended, and what it wrote
//! while execd keeps that. The list comes
//! from the sandbox itself, so programs in it may have forged it.

mod api;
mod buffer;
#[cfg(feature = "hydrate")]
mod connection;
mod form;
mod history;
mod output;
mod runner;
mod tab;
mod wire;

use tab::RunTab;
pub use wire::{Ended, RunLine, RunMessage, RunOrder, RunRequest, SECONDS_MAX};

use crate::lazy::{Part, part};

/// The tab, loaded when it is first shown.
pub(crate) const PART: Part = part!(run, RunTab);
