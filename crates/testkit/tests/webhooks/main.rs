//! Webhooks on the wire: what receivers get, when, and what administrators see.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

mod addresses;
mod events;
mod failures;
mod limits;
mod log;
mod management;
mod restart;
mod support;
mod tls;
