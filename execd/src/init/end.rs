//! Shutdown of the remaining processes.

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use crate::{base::Base, limits, process::tree, pty::PtySessions};

/// Deadline of the whole shutdown: the container engine may kill execd soon after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    deadline: Instant,
}

impl Stop {
    /// Shutdown requested at that time, or now if no time is given.
    #[must_use]
    pub fn requested_at(at: Option<Instant>) -> Self {
        let began = at.unwrap_or_else(Instant::now);
        Self {
            deadline: began + limits::STOP,
        }
    }

    /// Phase in which processes end. Leaves the time reserved for the two later phases.
    #[must_use]
    pub fn of_processes(self) -> Self {
        self.of_streams().minus(limits::DRAIN_LEAST)
    }

    /// Phase in which streams and connections end. Leaves the time reserved for the last metrics.
    #[must_use]
    pub fn of_streams(self) -> Self {
        self.minus(limits::TELEMETRY_FLUSH_LEAST)
    }

    fn minus(self, kept: Duration) -> Self {
        Self {
            deadline: self.deadline - kept,
        }
    }

    /// Deadline of this phase.
    #[must_use]
    pub fn deadline(self) -> Instant {
        self.deadline
    }

    /// Deadline of a step that may take up to `limit`.
    #[must_use]
    pub fn step_deadline(self, limit: Duration) -> Instant {
        self.deadline.min(Instant::now() + limit)
    }

    /// Remaining time of a step that may take up to `limit`.
    #[must_use]
    pub fn time_left(self, limit: Duration) -> Duration {
        self.step_deadline(limit)
            .saturating_duration_since(Instant::now())
    }
}

/// Ends every process below the daemon: SIGTERM, a grace period, SIGKILL. Ends by the deadline
/// whatever the processes do, and sends SIGKILL to all of them at least once.
pub async fn end_children(base: &Base, ptys: &PtySessions, stop: Stop) {
    let none_left = || base.processes.none_left();
    signal_all(Signal::TERM);
    // Interactive shells ignore SIGTERM. Other programs may flush on SIGTERM and would die of
    // SIGHUP.
    ptys.hang_up();
    let grace = stop.step_deadline(limits::LEFTOVER_GRACE);
    if timeout_at(grace, none_left()).await.is_ok() {
        return;
    }
    let deadline = stop.step_deadline(limits::LEFTOVER_GRACE);
    loop {
        // Repeated, because some processes may be forking.
        signal_all(Signal::KILL);
        if timeout(limits::GROUP_POLL, none_left()).await.is_ok() {
            return;
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    warn!("some processes could not be killed");
}

fn signal_all(signal: Signal) {
    for pid in tree::descendants(getpid()) {
        let _ended = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_steps_end_before_the_deadline() {
        let requested = Instant::now();
        let stop = Stop::requested_at(Some(requested));
        assert_eq!(stop.step_deadline(limits::DRAIN), requested + limits::DRAIN);
        // The entry point and the processes that it leaves behind use all of their time.
        tokio::time::advance(limits::ENTRYPOINT_GRACE + limits::LEFTOVER_GRACE).await;
        assert_eq!(
            stop.step_deadline(limits::TELEMETRY_FLUSH),
            requested + limits::STOP
        );
        let left = limits::STOP - limits::ENTRYPOINT_GRACE - limits::LEFTOVER_GRACE;
        assert!(!left.is_zero());
        assert_eq!(stop.time_left(limits::TELEMETRY_FLUSH), left);
        tokio::time::advance(limits::STOP).await;
        assert_eq!(stop.time_left(limits::TELEMETRY_FLUSH), Duration::ZERO);
        assert_eq!(stop.step_deadline(limits::DRAIN), stop.deadline());
        // A shutdown without a request begins now.
        let stop = Stop::requested_at(None);
        assert_eq!(
            stop.time_left(limits::TELEMETRY_FLUSH),
            limits::TELEMETRY_FLUSH
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_step_leaves_time_for_later_steps() {
        let stop = Stop::requested_at(Some(Instant::now()));
        tokio::time::advance(limits::ENTRYPOINT_GRACE).await;
        // Isolated sessions do not end, and the rest keeps its full grace period.
        let processes = stop.of_processes();
        let grace = processes.step_deadline(limits::LEFTOVER_GRACE);
        assert_eq!(grace, Instant::now() + limits::LEFTOVER_GRACE);
        let closed = processes.step_deadline(limits::ISOLATED_END);
        assert!(closed > grace, "time to kill");
        tokio::time::advance(closed - Instant::now()).await;
        // A stream that does not end.
        let streams = stop.of_streams();
        let drained = streams.time_left(limits::DRAIN);
        assert_eq!(drained, limits::DRAIN_LEAST);
        tokio::time::advance(drained).await;
        let flush = stop.time_left(limits::TELEMETRY_FLUSH);
        assert_eq!(flush, limits::TELEMETRY_FLUSH_LEAST);
    }

    #[test]
    fn the_shutdown_ends_before_the_engine_kills_execd() {
        const ENGINE: Duration = Duration::from_secs(10);
        assert!(limits::STOP + limits::GROUP_POLL + osb_log::limits::END < ENGINE);
    }
}
