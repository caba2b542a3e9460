//! Test fixtures: the real server in the test's own process, a proxy that can be cut, and waiting
//! for a condition with a bound.
//!
//! Nothing else in the workspace depends on the server's crate; tests that need it live here.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod engine_proxy;
mod server;
mod wait;

pub use engine_proxy::EngineProxy;
pub use server::{API_KEY, TestServer};
pub use wait::wait_until;
