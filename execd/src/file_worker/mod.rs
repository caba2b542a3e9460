//! Files as somebody else: `/v1/filesystem/{uid}/{gid}/…` (contract: execd A3.3).
//!
//! The kernel shall decide what an identity may do, so nothing here checks anything: the request is
//! served by a process that has this identity and nothing else.
//!
//! ```text
//!   client ──HTTP──▶ guard ─▶ request ══relay══▶ worker: `execd file-worker UID GID`
//!                                                1. becomes UID and GID, and says so
//!                                                2. serves the request with the routes of `file`
//!                                                3. ends with the socket, whatever still blocks
//! ```
//!
//! Why a process per request: work that blocks in the kernel, such as opening a pipe, can only be
//! ended together with its process, and two identities never share one. The files of isolated
//! sessions are served in the same way, by processes inside of them.

mod exchange;
mod identity;
pub(crate) mod relay;
mod request;
mod worker;

pub use identity::FileIdentity;
pub(crate) use request::routes;
pub use worker::run;

/// First argument of the program when it is a worker; user and group follow.
pub const SUBCOMMAND: &str = "file-worker";
