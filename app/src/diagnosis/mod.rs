//! The diagnostics tab: what happened to a sandbox, and what its container is set to.

mod api;
mod tab;

use tab::DiagnosisTab;

use crate::lazy::{Part, part};

/// The tab, loaded when it is first shown.
pub(crate) const PART: Part = part!(diagnosis, DiagnosisTab);
