//! Models of the lifecycle API (contract: lifecycle §4).

mod commands;
mod create;
mod diagnostics;
mod metrics;
mod sandbox;
mod volume;

pub use commands::*;
pub use create::*;
pub use diagnostics::*;
pub use metrics::*;
pub use sandbox::*;
pub use volume::*;
