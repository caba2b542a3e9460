//! The REST API over the simulated runtime, as clients see it.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

mod calls;
mod failures;
mod hooks;
mod life;
mod lists;
mod refusals;
mod requests;
mod resync;
mod volumes;
