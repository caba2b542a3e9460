//! Ctrl-C and SIGTERM while tests run. The first signal interrupts the running suites, which clean
//! up after themselves; a second one kills them.

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::signal::unix::{SignalKind, signal};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Leaders of the process groups that receive forwarded signals.
static GROUPS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Whether a signal asked this run to stop.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Forwards signals to a process group until dropped.
pub(crate) struct ForwardGuard(u32);

impl ForwardGuard {
    /// Forwards signals to the group that `leader` leads.
    pub(crate) fn new(leader: u32) -> Self {
        change(|groups| groups.insert(leader));
        Self(leader)
    }
}

impl Drop for ForwardGuard {
    fn drop(&mut self) {
        change(|groups| groups.remove(&self.0));
    }
}

/// Starts a thread that handles SIGINT and SIGTERM from now on.
pub(crate) fn listen() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        let take = |kind| signal(kind).context("cannot listen for signals");
        (
            take(SignalKind::interrupt())?,
            take(SignalKind::terminate())?,
        )
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    forward();
                }
            });
        })
        .map(drop)
        .map_err(|error: io::Error| error.into())
}

fn forward() {
    let again = INTERRUPTED.swap(true, Ordering::Relaxed);
    let signal = if again { Signal::KILL } else { Signal::INT };
    eprintln!("\nStopping. Press Ctrl-C again to kill the running tests.");
    change(|groups| {
        for leader in groups.iter() {
            signal_group(*leader, signal);
        }
        true
    });
}

/// Sends a signal to the process group that `leader` leads.
pub(crate) fn signal_group(leader: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        // The group may have ended already.
        let _ = kill_process_group(pid, signal);
    }
}

fn change(how: impl FnOnce(&mut BTreeSet<u32>) -> bool) {
    // Each change is one insert or remove, so a panic elsewhere cannot leave the set half changed.
    how(&mut GROUPS.lock().unwrap_or_else(PoisonError::into_inner));
}
