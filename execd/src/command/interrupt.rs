//! Interrupting a command (contract: execd §8): SIGTERM to its group, then SIGKILL.

use osb_service::Supervisor;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::{limits, process::Process};

/// Ends a command and everything in its group, also when the client that asked for it leaves. Says
/// whether it was still running.
pub(super) async fn interrupt(process: &Process, tasks: &Supervisor) -> bool {
    if !process.signal_group(Signal::TERM) {
        return false;
    }
    let escalation = tasks.spawn("interrupt", escalate(process.clone()));
    if let Err(error) = escalation.await {
        warn!(%error, "interrupting failed");
    }
    true
}

/// Waits for the end, and after a grace brings it about. Bounded: a process that the kernel holds
/// ends when the kernel lets it.
async fn escalate(process: Process) {
    let group = process.pid();
    let gone = async {
        process.exited().await;
        empty(group).await;
    };
    if timeout(limits::INTERRUPT_GRACE, gone).await.is_ok() {
        return;
    }
    if process.ended().is_none() {
        process.kill_tree();
        if timeout(limits::KILLED, process.exited()).await.is_err() {
            warn!(pid = group.as_raw_nonzero(), "a killed process did not end");
        }
    } else {
        // The leader left members behind; they keep the number of the group from being reused.
        let _gone = kill_process_group(group, Signal::KILL);
    }
}

/// Waits until nobody is left in a group. The kernel tells no end of a group, so this asks.
async fn empty(group: Pid) {
    while test_kill_process_group(group).is_ok() {
        sleep(limits::GROUP_POLL).await;
    }
}
