//! Ending what still runs.

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use crate::{app::App, limits, process::tree};

/// When the whole stop must be over: who told us to end may kill us soon after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    deadline: Instant,
}

impl Stop {
    /// The stop that was asked for at that time; without it one that begins now.
    #[must_use]
    pub fn asked_for(at: Option<Instant>) -> Self {
        let began = at.unwrap_or_else(Instant::now);
        Self {
            deadline: began + limits::STOP,
        }
    }

    /// When it must be over.
    #[must_use]
    pub fn deadline(self) -> Instant {
        self.deadline
    }

    /// When a part of it must be over that may take so long.
    #[must_use]
    pub fn part(self, limit: Duration) -> Instant {
        self.deadline.min(Instant::now() + limit)
    }

    /// What is left of it for a part that may take so long.
    #[must_use]
    pub fn left(self, limit: Duration) -> Duration {
        self.part(limit).saturating_duration_since(Instant::now())
    }
}

/// Ends every process below the daemon: SIGTERM, a grace, SIGKILL. Bounded, whatever they do, and by
/// the stop; but all are killed at least once.
pub async fn end_children(app: &App, stop: Stop) {
    let none_left = || app.processes.none_left();
    signal_all(Signal::TERM);
    // Interactive shells ignore SIGTERM. Others may flush on SIGTERM and would die of SIGHUP.
    app.ptys.hang_up();
    let grace = stop.part(limits::LEFTOVER_GRACE);
    if timeout_at(grace, none_left()).await.is_ok() {
        return;
    }
    let deadline = stop.part(limits::LEFTOVER_GRACE);
    loop {
        // Again and again, because some may be forking.
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
        let _gone = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_parts_together_stay_within_the_stop() {
        let told = Instant::now();
        let stop = Stop::asked_for(Some(told));
        assert_eq!(stop.part(limits::DRAIN), told + limits::DRAIN);
        // The entry point takes all of its time, and what it leaves behind too.
        tokio::time::advance(limits::ENTRYPOINT_GRACE + limits::LEFTOVER_GRACE).await;
        assert_eq!(stop.part(limits::TELEMETRY_FLUSH), told + limits::STOP);
        let left = limits::STOP - limits::ENTRYPOINT_GRACE - limits::LEFTOVER_GRACE;
        assert!(!left.is_zero());
        assert_eq!(stop.left(limits::TELEMETRY_FLUSH), left);
        tokio::time::advance(limits::STOP).await;
        assert_eq!(stop.left(limits::TELEMETRY_FLUSH), Duration::ZERO);
        assert_eq!(stop.part(limits::DRAIN), stop.deadline());
        // One that nobody asked for begins when it begins.
        let stop = Stop::asked_for(None);
        assert_eq!(stop.left(limits::TELEMETRY_FLUSH), limits::TELEMETRY_FLUSH);
    }

    #[test]
    fn the_stop_ends_before_the_engine_kills() {
        const ENGINE: Duration = Duration::from_secs(10);
        assert!(limits::STOP + limits::GROUP_POLL + limits::LOG_END < ENGINE);
    }
}
