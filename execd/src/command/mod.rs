//! Commands (contract: execd §4, §5, §8, A2).
//!
//! ```text
//!  POST /command ─▶ plan ─▶ run ─spawn─▶ process ─▶ output: a stream, or a log for GET …/logs
//!                            └▶ store: records for status, interrupt, logs
//! ```
//!
//! A client that leaves ends the stream, not the command.

pub mod api;
mod interrupt;
mod plan;
mod run;
mod store;

pub use store::Commands;
