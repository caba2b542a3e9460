//! The diagnostics tab: why a sandbox is as it is, checks that run now, what happened to it, and what
//! its container is set to.

mod api;
#[cfg(feature = "ssr")]
pub mod backend;
mod health;
mod json;
mod tab;
mod wire;

use tab::DiagnosisTab;
pub use wire::{CheckEnd, HealthCheck};

use crate::lazy::{Part, part};

/// The tab, loaded when it is first shown.
pub(crate) const PART: Part = part!(diagnosis, DiagnosisTab);
