//! Tests that need a process of their own or much of the machine, and tests whose servers store
//! nothing that they look at. `cargo test --test alone -- --test-threads=1` runs them one by one.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

mod clock;
mod edge;
mod neighbours;
mod openapi;
mod overload;
mod telemetry;
