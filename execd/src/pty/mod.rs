//! Terminal sessions (contract: execd §9, A10).
//!
//! ```text
//!  POST /pty ─▶ Session (nothing runs)
//!  GET …/ws  ─▶ attach ─▶ starts the process unless it runs
//!
//!      process ──▶ pump ──▶ Scrollback (1 MiB, by offset) ──▶ holder   reads and writes, one
//!         ▲                                                └─▶ viewers  read only, any number
//!         └───────────── input, size, signals ◀── holder
//! ```
//!
//! Every connection reads the ring at its own offset. Each byte is therefore delivered once, replay
//! and live output are the same, and the exit frame follows the last byte. The process waits
//! briefly when its holder falls behind. After that, the holder misses output and receives a frame
//! that reports it.

mod api;
mod attach;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod input;
mod process;
mod scrollback;
mod session;
mod socket;

pub(crate) use api::routes;
pub use session::PtySessions;
