//! Models of the lifecycle API (contract: lifecycle §4).

mod commands;
mod create;
mod diagnostics;
mod metrics;
mod network;
mod pool;
mod sandbox;
mod snapshot;
mod template;
mod volume;

pub use commands::*;
pub use create::*;
pub use diagnostics::*;
pub use metrics::*;
pub use network::*;
pub use pool::*;
pub use sandbox::*;
pub use snapshot::*;
pub use template::*;
pub use volume::*;
