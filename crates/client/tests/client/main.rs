//! The client against servers that follow the contract, and servers that do not.
#![expect(
    clippy::unwrap_used,
    reason = "clippy does not see that these helpers only run in tests"
)]

mod commands;
mod egress;
mod files;
mod lifecycle;
mod support;
mod terminals;
