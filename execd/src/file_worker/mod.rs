//! Files with another identity: `/v1/filesystem/{uid}/{gid}/…` (contract: execd A3.3).
//!
//! The kernel decides what an identity may do, so the daemon checks nothing: a process with exactly
//! this identity serves the request.
//!
//! ```text
//!   client ──HTTP──▶ guard ─▶ request ══relay══▶ worker: `execd file-worker UID GID`
//!                                                1. becomes UID and GID, and says so
//!                                                2. serves the request with the routes of `file`
//!                                                3. ends with the socket, whatever still blocks
//! ```
//!
//! Each request has its own process, because work that blocks in the kernel, such as opening a
//! FIFO, ends only with its process, and two identities must never share one. Processes inside
//! isolated sessions serve the sessions' files in the same way.

mod exchange;
mod identity;
pub(crate) mod relay;
mod request;
pub(crate) mod slots;
mod worker;

pub use identity::FileIdentity;
pub(crate) use request::routes;
pub use worker::run;

/// First argument of a worker process; user and group follow.
pub const SUBCOMMAND: &str = "file-worker";
