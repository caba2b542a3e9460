//! What an operator does beside the running server. These commands read the same configuration.

mod bundle;
mod store;

pub use bundle::{Bundle, support_bundle};
pub use store::{backup, check, restore};
