//! Test fixtures: the real server in the test's process, an engine proxy that can be cut, a Redis, and
//! polling with a deadline.
//!
//! Nothing else in the workspace depends on the server's crate; tests that need it live here.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod engine_proxy;
mod redis;
mod sandbox;
mod server;
mod store;
mod wait;
mod wire;

pub use engine_proxy::EngineProxy;
pub use redis::RedisServer;
pub use sandbox::{CannedProgram, running_at};
pub use server::{API_KEY, TestServer};
pub use store::{Schema, store_in};
pub use wait::wait_until;
pub use wire::{connect_from, exchange};
