//! `egress`: decides where a sandbox may connect to.
//!
//! The sidecar shares the network namespace of a sandbox. It answers the sandbox's DNS queries by a
//! policy, and has the kernel refuse connections that the policy does not allow (contract: egress).
#![warn(missing_docs)]

pub mod api;
pub mod config;
pub mod daemon;
pub mod decisions;
pub mod dns;
pub mod enforcer;
pub mod firewall;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod limits;
mod places;
pub mod policy;
pub mod policy_file;
pub mod sockets;
pub mod supervisor;
pub mod telemetry;
pub mod webhook;
