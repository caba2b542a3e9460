//! The network tab: the policy of a sandbox, what was decided by it, and the policy that follows from
//! that.

mod api;
#[cfg(feature = "ssr")]
pub mod backend;
mod change;
mod decided;
mod decisions;
mod live;
mod parts;
mod policy;
mod proposal;
mod tab;
mod wire;

pub use change::PolicyChange;
use tab::NetworkTab;
pub use wire::{Network, NetworkView};

use crate::lazy::{Part, part};

/// The tab, loaded when it is first shown.
pub(crate) const PART: Part = part!(network, NetworkTab);
