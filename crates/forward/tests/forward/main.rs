//! The forwarder between real connections: the tests play client and backend.
#![expect(
    clippy::unwrap_used,
    reason = "clippy does not see that these helpers only run in tests"
)]

mod bodies;
mod connections;
mod detour;
mod headers;
mod kept;
mod support;
