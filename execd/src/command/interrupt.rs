//! Interrupting a command (contract: execd §8): SIGTERM to its group, then SIGKILL.

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::time::{sleep, timeout};

use crate::{limits, process::Process};

/// Ends a command and everything in its group. Says whether it was still running.
pub(super) async fn interrupt(process: &Process) -> bool {
    if !process.signal_group(Signal::TERM) {
        return false;
    }
    let group = process.pid();
    let gone = async {
        process.exited().await;
        empty(group).await;
    };
    if timeout(limits::INTERRUPT_GRACE, gone).await.is_err() {
        if process.ended().is_none() {
            process.kill_tree();
            process.exited().await;
        } else {
            // The leader left members behind; they keep the number of the group from being reused.
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
    true
}

/// Waits until nobody is left in a group. The kernel tells no end of a group, so this asks.
async fn empty(group: Pid) {
    while test_kill_process_group(group).is_ok() {
        sleep(limits::GROUP_POLL).await;
    }
}
