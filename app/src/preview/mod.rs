//! The preview tab: the ports on which programs of a sandbox listen, and what one of them shows to a
//! browser or, with a desktop, to noVNC.

mod api;
#[cfg(feature = "ssr")]
pub mod backend;
mod desktop;
mod tab;
mod wire;

pub(crate) use api::read_ports;
use tab::PreviewTab;
pub use wire::Ports;

use crate::lazy::{Part, part};

/// The tab, loaded when it is first shown.
pub(crate) const PART: Part = part!(preview, PreviewTab);
