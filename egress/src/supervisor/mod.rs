//! Keeps a command running (contract: egress §8.1).
//!
//! ```text
//!  ┌▶ pre-start hooks ──▶ worker ──▶ its exit ──▶ post-exit hooks ──▶ breaker ──▶ exit 1
//!  │        │                                                         ▲  │
//!  │        └── a failure counts as a launch ─────────────────────────┘  │
//!  └────────────────── at once, or after a backoff ◀─────────────────────┘
//! ```
//!
//! One task does all of it, also the waiting for children: a container whose first process is the
//! supervisor has no other process that reaps orphans.
//!
//! A difference from the contract: a worker that was stable is restarted at once, because the DNS of
//! the sandbox fails while the worker is away. If the next one fails too, the backoff begins.

mod backoff;
mod breaker;
mod children;
mod duration;
mod events;
mod hooks;
mod options;
mod run;
#[cfg(test)]
mod tests;

use std::error::Error;

use osb_service::signal;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

pub use options::{Options, USAGE, UsageError, parse};

use crate::sockets::Held;
use run::Supervision;

/// Exit statuses of the supervisor (contract: egress §8.1).
pub mod status {
    /// It was asked to stop.
    pub const STOPPED: u8 = 0;
    /// The worker was launched too often.
    pub const TRIPPED: u8 = 1;
    /// Wrong flags, or the supervisor could not begin.
    pub const FAILED: u8 = 2;
}

/// Keeps the worker running until SIGINT, SIGTERM or the breaker, and returns the exit status, one
/// of [`status`]. Each worker is lent the sockets. The process must have no other children: when it adopts orphans, it reaps every
/// child.
pub async fn supervise(options: Options, sockets: Option<Held>) -> u8 {
    let stop = CancellationToken::new();
    let supervision = match Supervision::new(options, sockets, stop.clone()) {
        Ok(supervision) => supervision,
        Err(error) => {
            error!(error = &error as &dyn Error, "the supervisor cannot begin");
            return status::FAILED;
        }
    };
    let signals = async {
        match signal::shutdown().await {
            Ok(signal) => {
                info!(signal, "the supervisor stops");
                stop.cancel();
                std::future::pending().await
            }
            Err(error) => {
                error!(
                    error = &error as &dyn Error,
                    "the supervisor cannot receive signals"
                );
                status::FAILED
            }
        }
    };
    tokio::select! {
        // In this order, because the first poll installs the signal handlers.
        biased;
        status = signals => status,
        status = supervision.run() => status,
    }
}
