//! Ending what still runs.

use rustix::process::{Signal, getpid, kill_process};
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::{app::App, limits, process::tree};

/// Ends every process below the daemon: SIGTERM, a grace, SIGKILL. Bounded, whatever they do.
pub async fn end_children(app: &App) {
    let none_left = || app.processes.none_left();
    signal_all(Signal::TERM);
    // Interactive shells ignore SIGTERM. Others may flush on SIGTERM and would die of SIGHUP.
    app.ptys.hang_up();
    if timeout(limits::LEFTOVER_GRACE, none_left()).await.is_ok() {
        return;
    }
    let deadline = Instant::now() + limits::LEFTOVER_GRACE;
    while Instant::now() < deadline {
        // Again and again, because some may be forking.
        signal_all(Signal::KILL);
        if timeout(limits::GROUP_POLL, none_left()).await.is_ok() {
            return;
        }
    }
    warn!("some processes could not be killed");
}

fn signal_all(signal: Signal) {
    for pid in tree::descendants(getpid()) {
        let _gone = kill_process(pid, signal);
    }
}
