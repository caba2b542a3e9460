//! Waiting for something that another process does and tells nobody about.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Looks until `done` or until the time is up; whether it was done.
pub(crate) fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    // Nobody ever sends: receiving is only a pause.
    let (_never, pause) = mpsc::sync_channel::<()>(0);
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        let _ = pause.recv_timeout(LOOK_AGAIN);
    }
}
