//! Policies: what they say, and what follows for a name or an address. No I/O but the operator's
//! files.

mod effective;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod index;
pub mod overlay;
mod touched;

pub use effective::{Decision, Effective, EffectiveRule, Networks, Origin};
pub use index::NameIndex;
pub use osb_protocol::network_policy::{
    Action, Policy, PolicyError, PolicyMode, Removal, Rule, Target, TargetError, parse_rules,
    parse_targets,
};
pub use touched::Touched;
