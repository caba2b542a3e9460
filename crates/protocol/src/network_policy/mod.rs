//! Network policies: what a sandbox may connect to (contract: egress §4). The server, the sidecar and
//! the console read them with the same code.

mod address;
mod document;
mod proposal;
mod public;
mod rule;
#[cfg(test)]
mod spellings;
mod suffix;
mod verdict;

pub use address::AddressKind;
pub use document::{Policy, PolicyError, PolicyMode, Removal, parse_rules, parse_targets};
pub use proposal::propose;
pub use public::not_public;
pub use rule::{Action, Rule, Target, TargetError};

/// Rules that a policy may have unless the sidecar's operator says otherwise (contract: egress §5.8).
pub const RULES_MAX: usize = 4096;
