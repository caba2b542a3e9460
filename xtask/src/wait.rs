//! Polling for changes that another process makes without a notification.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

/// Pause between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Polls `done` until it returns true or the time is up; returns whether it became true.
pub(crate) fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    // No value is ever sent: receiving is only a pause.
    let (_never, pause) = mpsc::sync_channel::<()>(0);
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        let _ = pause.recv_timeout(POLL_INTERVAL);
    }
}
