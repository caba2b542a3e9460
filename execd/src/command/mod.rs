//! Commands (contract: execd §4, §5, §8, A2).
//!
//! ```text
//!  POST /command ─▶ plan ─▶ run ─spawn─▶ process
//!                            │              │ pipes
//!                            │            pump ──▶ spool (foreground) ──▶ stream ─▶ client
//!                            │              └────▶ log   (background) ──▶ GET …/logs
//!                            └▶ store: records for status, interrupt, logs
//! ```
//!
//! A process never waits for a client: the pump moves its output into memory, and beyond a window
//! to disk. A client that leaves ends the stream, not the command.

pub mod api;
mod frame;
mod interrupt;
mod lines;
mod log;
mod plan;
mod pump;
mod run;
mod spool;
mod store;
mod stream;

pub use store::Commands;
