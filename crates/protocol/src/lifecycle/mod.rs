//! Models of the lifecycle API (contract: lifecycle §4).

mod create;
mod sandbox;
mod volume;

pub use create::*;
pub use sandbox::*;
pub use volume::*;
