//! The parts that every binary shares.
//!
//! * [`supervise`]: named tasks with one owner, drained within a bound.
//! * [`config`]: TOML files with errors that name the key and the rule, and never the value.
//! * [`telemetry`]: the log. [`log_file`]: a file of bounded size for it.
//! * [`signal`]: when to stop, and names of signals.
//! * [`request_body`] and [`linger`]: answers that come before the request was read.
//! * [`host`]: memory and processor time of the machine. [`heap`]: memory that the allocator retains.
//! * [`descriptors`]: the limit of open files.
//! * [`clock`]: the time of day, which tests can set.
//! * [`build_info`]: which build this is.
//! * [`ErrorChain`]: an error with its causes on one line.
#![warn(missing_docs)]
#![deny(unsafe_code)]

pub mod build_info;
pub mod clock;
pub mod config;
pub mod descriptors;
mod error_chain;
pub mod heap;
pub mod host;
pub mod linger;
pub mod log_file;
pub mod request_body;
pub mod signal;
pub mod supervise;
pub mod telemetry;

pub use error_chain::ErrorChain;
pub use supervise::{Drained, Supervisor};
