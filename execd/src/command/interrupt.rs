//! Interruption of a command (contract: execd §8): SIGTERM to its group, then SIGKILL.

use osb_service::Supervisor;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::{limits, process::Process};

/// Ends a command and its process group, even if the requesting client disconnects. Returns whether
/// it was still running.
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

/// Waits for the end, and kills the group after a grace period. Bounded: a process in an
/// uninterruptible system call ends later.
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
        // Remaining members keep the group id from being reused.
        let _gone = kill_process_group(group, Signal::KILL);
    }
}

/// Waits until a process group is empty. The kernel does not report that, so this polls.
async fn empty(group: Pid) {
    while test_kill_process_group(group).is_ok() {
        sleep(limits::GROUP_POLL).await;
    }
}
