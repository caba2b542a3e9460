//! Ctrl-C and SIGTERM while tests run: the suite is told, cleans up behind itself, and nothing of
//! ours stays. A second signal kills what did not listen to the first.

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
/// Process groups under way.
static GROUPS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Whether we were asked to stop.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// A process group that is told of signals, until dropped.
pub(crate) struct Told(u32);

impl Told {
    /// Tells the group that `leader` leads.
    pub(crate) fn group(leader: u32) -> Self {
        change(|groups| groups.insert(leader));
        Self(leader)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        change(|groups| groups.remove(&self.0));
    }
}

/// Takes over the signals from now on.
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
                    pass_on();
                }
            });
        })
        .map(drop)
        .map_err(|error: io::Error| error.into())
}

fn pass_on() {
    let again = INTERRUPTED.swap(true, Ordering::Relaxed);
    let signal = if again { Signal::KILL } else { Signal::INT };
    eprintln!("\nStopping. Once more to kill what runs.");
    change(|groups| {
        for leader in groups.iter() {
            tell(*leader, signal);
        }
        true
    });
}

/// Sends a signal to a group; one that ended meanwhile is what we want.
pub(crate) fn tell(leader: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, signal);
    }
}

fn change(how: impl FnOnce(&mut BTreeSet<u32>) -> bool) {
    // The set is whole after every change, whatever happened elsewhere.
    how(&mut GROUPS.lock().unwrap_or_else(PoisonError::into_inner));
}
