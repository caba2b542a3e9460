//! Commands (contract: execd §4, §5, §8, A2).
//!
//! ```text
//!  POST /command ─▶ plan ─▶ run ─spawn─▶ process ─▶ output: events, or a log for GET …/logs
//!                            └▶ store: records for status, interrupt, logs and events
//! ```
//!
//! A disconnect ends the client's stream, not the command. The client can request the events after
//! the last one it received: `GET /command/{id}/events?since=`.

pub mod api;
mod interrupt;
mod once;
mod plan;
mod run;
mod store;

pub use store::Commands;
