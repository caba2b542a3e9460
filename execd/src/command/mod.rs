//! Commands (contract: execd §4, §5, §8, A2).
//!
//! ```text
//!  POST /command ─▶ plan ─▶ run ─spawn─▶ process ─▶ output: events, or a log for GET …/logs
//!                            └▶ store: records for status, interrupt, logs and events
//! ```
//!
//! A client that leaves ends its stream, not the command. It can come back for the events after the
//! last that it has seen: `GET /command/{id}/events?since=`.

pub mod api;
mod interrupt;
mod once;
mod plan;
mod run;
mod store;

pub use store::Commands;
