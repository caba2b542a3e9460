//! What an operator does beside the running server. These commands read the same configuration; some of
//! it is in the console as well.

mod bundle;
mod health;
mod installation;
mod local_server;
mod store;

pub use bundle::{Bundle, support_bundle};
pub use health::health;
pub use installation::RunningInstallation;
pub use store::{backup, check, migrate_snapshots, restore};
