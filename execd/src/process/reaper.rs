//! Reaper: the only code that waits for children.

use std::sync::TryLockError;

use rustix::{
    io::{Errno, retry_on_intr},
    process::{Pid, WaitOptions, wait, waitpid},
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
            tokio::select! {
                ended = ended.recv() => if ended.is_none() {
                    return;
                },
                () = self.inner.spawned.notified() => {}
            }
        }
    }

    /// Reaps up to one batch; returns whether more may be waiting.
    fn reap_batch(&self) -> bool {
        let lock = || match self.inner.spawning.try_write() {
            Ok(guard) => Some(guard),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("no holder of this lock panics"),
        };
        // The second attempt ensures that the spawn ends after the flag is set, and so sees it.
        let guard = lock().or_else(|| {
            *self.passed_over() = true;
            lock()
        });
        match guard {
            Some(_guard) => self.reap_any(),
            None => {
                self.reap_registered();
                false
            }
        }
    }

    /// Reaps up to one batch of children, registered or not; returns whether more may be waiting.
    fn reap_any(&self) -> bool {
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

    /// Reaps registered children.
    fn reap_registered(&self) {
        let mut table = self.table();
        let exit_of = |pid: &Pid| {
            let waited = retry_on_intr(|| waitpid(Some(*pid), WaitOptions::NOHANG));
            let (_, status) = waited.ok().flatten()?;
            Some((*pid, Exit::of(status)?))
        };
        let ended: Vec<_> = table.keys().filter_map(exit_of).collect();
        for (pid, exit) in ended {
            // Published under the lock: a spawn in progress may register the same pid right after.
            if let Some(sender) = table.remove(&pid) {
                sender.send_replace(Some(exit));
            }
        }
    }
}

fn orphan(pid: Pid, exit: Exit) {
    debug!(pid = pid.as_raw_nonzero(), %exit, "reaped an orphan");
}
