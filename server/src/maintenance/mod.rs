//! What an operator does beside the running server. These commands read the same configuration; some of
//! it is in the console as well.

mod bundle;
mod installation;
mod store;

pub use bundle::{Bundle, support_bundle};
pub use installation::RunningInstallation;
pub use store::{backup, check, restore};
