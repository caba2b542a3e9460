//! The server over the real Docker engine: behaviour that only a real engine shows.
//!
//! Needs the engine's socket, an execd binary and one image; fails with the reason otherwise.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

mod containers;
mod creates;
mod diagnostics;
mod engine;
mod faults;
mod images;
mod isolation;
mod loopback;
mod pause;
mod pools;
mod quotas;
mod requests;
mod restart;
mod second_engine;
mod secrets;
mod secure_access;
mod secure_runtime;
mod sidecar;
mod snapshots;
mod stage;
mod takeover;
mod templates;
mod volumes;
mod warm;
