//! Reaper: the only code that waits for children.

use rustix::{
    io::Errno,
    process::{Pid, WaitOptions, wait},
};
use tokio::signal::unix::Signal;
use tracing::{debug, error};

use super::{Exit, Processes};
use crate::limits;

impl Processes {
    /// Reaps whenever a child ends, until the task is dropped. `ended` must have been registered
    /// for SIGCHLD before the first child was started.
    pub async fn reap(self, mut ended: Signal) {
        loop {
            // One signal may stand for many children, so all ended ones are reaped.
            while self.reap_batch() {
                tokio::task::yield_now().await;
            }
            if ended.recv().await.is_none() {
                return;
            }
        }
    }

    /// Reaps up to one batch; returns whether more may be waiting.
    fn reap_batch(&self) -> bool {
        let spawning = self.inner.spawning.write();
        let _guard = spawning.expect("no holder of this lock panics");
        for _ in 0..limits::REAP_BATCH {
            let mut table = self.table();
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let Some(exit) = Exit::of(status) else {
                        continue;
                    };
                    let child = table.remove(&pid);
                    drop(table);
                    match child {
                        Some(sender) => {
                            sender.send_replace(Some(exit));
                        }
                        None => orphan(pid, exit),
                    }
                }
                Ok(None) => return false,
                Err(Errno::INTR) => {}
                Err(Errno::CHILD) => {
                    drop(table);
                    self.inner.populated.send_replace(false);
                    return false;
                }
                Err(errno) => {
                    error!(%errno, "waiting for children failed");
                    return false;
                }
            }
        }
        true
    }
}

fn orphan(pid: Pid, exit: Exit) {
    debug!(pid = pid.as_raw_nonzero(), %exit, "reaped an orphan");
}
