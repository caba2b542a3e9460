//! The server's proxy on the wire: secure access, renewal on access, pages for browsers, and pauses.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

mod addresses;
mod forwarding;
mod pages;
mod pauses;
mod renewal;
mod secure_access;
mod support;
