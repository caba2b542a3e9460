//! Terminal sessions (contract: execd §9, A10).
//!
//! ```text
//!  POST /pty ─▶ Session (nothing runs)
//!  GET …/ws  ─▶ attach ─▶ starts the process unless it runs
//!
//!      process ──▶ pump ──▶ Screen (ring of 1 MiB, offsets)  ──▶ holder   reads and writes, one
//!         ▲                                                   └─▶ viewers  read only, any number
//!         └───────────── input, size, signals ◀── holder
//! ```
//!
//! Every connection reads the ring at its own offset, so a byte is delivered once, replay and live
//! output are the same thing, and the exit frame comes after the last byte. The process is held back
//! for a moment when its holder falls behind, and not for ever: after that the holder is told that
//! it missed something.

mod api;
mod attach;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod input;
mod process;
mod screen;
mod session;
mod socket;

pub(crate) use api::routes;
pub use session::Sessions;
