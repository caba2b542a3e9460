//! Child processes: this module spawns, signals and reaps all of them.
//!
//! As init the daemon inherits orphans, so it must wait for *any* child; two waiters would steal
//! each other's statuses. Hence [`Processes::spawn`] registers a child, and only the reaper
//! collects and distributes statuses.
//!
//! Three invariants make that safe:
//! * Between the start of a child and its registration (`spawning`) the reaper collects the statuses
//!   of registered children only. It does not wait: a start takes as long as the file system with
//!   the program.
//! * A child leaves the table in the same critical section in which it is reaped, and signals are
//!   sent under the same lock, so a signal never hits a recycled process id.
//! * The status is published after the child left the table.

mod enter;
mod exit;
mod inherit;
mod lookup;
mod program;
mod reaper;
mod signals;
pub mod tree;

use std::{
    collections::HashMap,
    io,
    path::Path,
    process::Command,
    sync::{Arc, Mutex, OnceLock, RwLock},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::sync::{Notify, watch};

use crate::{blocking::in_place, hardening::ProcessHardening, identity::Credentials};

use enter::enter;
pub use exit::Exit;
pub use inherit::{Place, inherit};
pub use lookup::{find, shell};
pub use program::Program;
pub use signals::reset_for_children;

/// Owner of all child processes. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Held for reading around a spawn, for writing around reaping any child.
    spawning: RwLock<()>,
    /// Whether the reaper passed over unregistered children because of a spawn.
    passed_over: Mutex<bool>,
    /// Signalled when such a spawn has ended.
    spawned: Notify,
    table: Mutex<HashMap<Pid, watch::Sender<Option<Exit>>>>,
    /// Whether a child may exist. Descendants count if the daemon inherits orphans.
    populated: watch::Sender<bool>,
    /// Restrictions on the user's processes; never set in processes that start none.
    hardening: OnceLock<ProcessHardening>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            spawning: RwLock::default(),
            passed_over: Mutex::default(),
            spawned: Notify::new(),
            table: Mutex::default(),
            populated: watch::Sender::new(false),
            hardening: OnceLock::new(),
        }
    }
}

/// Child process. Clones refer to the same child.
#[derive(Clone, Debug)]
pub struct Process {
    pid: Pid,
    owner: Processes,
    exit: watch::Receiver<Option<Exit>>,
}

impl Processes {
    /// Sets the restrictions on the user's processes. Must be called before the first of them; the
    /// default has none.
    ///
    /// # Panics
    /// When it was set before, since callers must not rely on restrictions that are not in force.
    pub fn harden(&self, hardening: ProcessHardening) {
        let set = self.inner.hardening.set(hardening);
        assert!(
            set.is_ok(),
            "the restrictions are set once, before the first process"
        );
    }

    /// Restrictions on the user's processes.
    pub(crate) fn hardening(&self) -> &ProcessHardening {
        self.inner.hardening.get_or_init(ProcessHardening::default)
    }

    /// Starts a process of the user.
    ///
    /// # Errors
    /// The system's error; the command did not run then.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Process> {
        self.hardening().prepare(command, None)?;
        self.spawn_own(command)
    }

    /// Starts a process of the user with another identity, which also enters the directory.
    ///
    /// # Errors
    /// See [`Self::spawn`].
    pub(crate) fn spawn_as(
        &self,
        command: &mut Command,
        identity: &Credentials,
        cwd: Option<&Path>,
    ) -> io::Result<Process> {
        self.hardening().prepare(command, Some(identity))?;
        if let Some(cwd) = cwd {
            enter(command, cwd)?;
        }
        self.spawn_own(command)
    }

    /// Starts a process for the daemon or the sandbox's creator, with all rights of the daemon.
    ///
    /// # Errors
    /// See [`Self::spawn`].
    pub(crate) fn spawn_own(&self, command: &mut Command) -> io::Result<Process> {
        let spawned = in_place(|| self.spawn_registered(command));
        if std::mem::take(&mut *self.passed_over()) {
            self.inner.spawned.notify_one();
        }
        spawned
    }

    fn spawn_registered(&self, command: &mut Command) -> io::Result<Process> {
        let spawning = self.inner.spawning.read();
        let _guard = spawning.expect("no holder of this lock panics");
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let (sender, exit) = watch::channel(None);
        self.table().insert(pid, sender);
        self.inner.populated.send_replace(true);
        let owner = self.clone();
        Ok(Process { pid, owner, exit })
    }

    /// Waits until no child is left.
    pub async fn none_left(&self) {
        let mut populated = self.inner.populated.subscribe();
        let _closed = populated.wait_for(|populated| !populated).await;
    }

    fn passed_over(&self) -> std::sync::MutexGuard<'_, bool> {
        let passed_over = self.inner.passed_over.lock();
        passed_over.expect("no holder of this lock panics")
    }

    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<Pid, watch::Sender<Option<Exit>>>> {
        let table = self.inner.table.lock();
        table.expect("no holder of this lock panics")
    }
}

impl Process {
    /// Process id, which is also the id of its group unless it was started otherwise.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Exit status, if the process has ended.
    #[must_use]
    pub fn ended(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    /// Waits for the end of the process.
    pub async fn exited(&self) -> Exit {
        let mut exit = self.exit.clone();
        let published = exit.wait_for(Option::is_some).await;
        published
            .ok()
            .and_then(|exit| *exit)
            .expect("the reaper publishes before it drops the sender")
    }

    /// Signals the process group. Returns whether the process still existed.
    pub fn signal_group(&self, signal: Signal) -> bool {
        let table = self.owner.table();
        self.is_in(&table) && kill_process_group(self.pid, signal).is_ok()
    }

    /// Signals the process alone. Returns whether it still existed.
    pub fn signal(&self, signal: Signal) -> bool {
        let table = self.owner.table();
        self.is_in(&table) && kill_process(self.pid, signal).is_ok()
    }

    /// Kills the process, its group and all descendants, including those in other sessions.
    pub fn kill_tree(&self) {
        let table = self.owner.table();
        if self.is_in(&table) {
            // Found before the parent dies: afterwards they are no longer its descendants.
            let descendants = tree::descendants(self.pid);
            let _gone = kill_process_group(self.pid, Signal::KILL);
            // The process may be in another group.
            for pid in descendants.into_iter().chain([self.pid]) {
                let _gone = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Kills all descendants, but not the process itself.
    pub(crate) fn kill_descendants(&self) {
        let table = self.owner.table();
        if self.is_in(&table) {
            for pid in tree::descendants(self.pid) {
                let _gone = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Whether the pid still refers to this process. If another child has it, this one has ended,
    /// which was published before the new child was registered.
    fn is_in(&self, table: &HashMap<Pid, watch::Sender<Option<Exit>>>) -> bool {
        table.contains_key(&self.pid) && self.ended().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "before the first process")]
    fn hardening_set_after_the_first_process_panics() {
        let processes = Processes::default();
        let _none = processes.hardening();
        processes.harden(ProcessHardening::default());
    }

    #[test]
    fn a_stale_handle_signals_no_process_and_a_tree_includes_its_root() {
        let processes = Processes::default();
        // It stays in the process group of this test, and ends with its input, even if an
        // assertion fails.
        let (input, _held) = io::pipe().unwrap();
        let process = processes
            .spawn(Command::new("cat").stdin(input))
            .expect("there is a cat");
        let (_sender, exit) = watch::channel(Some(Exit::Code(0)));
        let past = Process {
            exit,
            ..process.clone()
        };
        past.kill_tree();
        assert!(!past.signal(Signal::KILL) && !past.signal_group(Signal::KILL));
        let status = || {
            let options = rustix::process::WaitOptions::NOHANG;
            rustix::process::waitpid(Some(process.pid()), options).unwrap()
        };
        assert!(status().is_none(), "it lives");
        process.kill_tree();
        let (_, status) =
            rustix::process::waitpid(Some(process.pid()), rustix::process::WaitOptions::empty())
                .unwrap()
                .unwrap();
        assert_eq!(status.terminating_signal(), Some(9));
    }
}
