//! The preview tab: the ports on which programs of a sandbox listen, and what one of them shows to a
//! browser.

mod api;
#[cfg(feature = "ssr")]
pub mod backend;
mod tab;
mod wire;

use tab::PreviewTab;
pub use wire::Ports;

use crate::lazy::{Part, part};

/// The tab, loaded when it is first shown.
pub(crate) const PART: Part = part!(preview, PreviewTab);
