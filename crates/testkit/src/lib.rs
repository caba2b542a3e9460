//! Test fixtures: the real server in the test's process, an engine proxy that can be cut, a Redis, a
//! receiver of webhooks, a clock that tests move, and polling with a deadline.
//!
//! Nothing else in the workspace depends on the server's crate; tests that need it live here.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod clock;
mod engine_proxy;
mod log;
mod redis;
mod routes;
mod sandbox;
mod server;
mod store;
mod wait;
mod webhook_receiver;
mod wire;

pub use clock::ManualClock;
pub use engine_proxy::EngineProxy;
pub use log::collect_with;
pub use redis::RedisServer;
pub use routes::{MountedRoute, mounted_routes};
pub use sandbox::{CannedProgram, running_at};
pub use server::{API_KEY, TestServer};
pub use store::{Database, store_in};
pub use wait::{patience, scaled, soon, wait_until};
pub use webhook_receiver::{ReceivedWebhook, WebhookReceiver};
pub use wire::{connect_from, exchange};
