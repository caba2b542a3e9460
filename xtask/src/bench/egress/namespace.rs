//! Network namespaces without names. The kernel removes one with the last process, socket and
//! descriptor in it, so none stays behind, however the bench ends.

use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, setns, unshare};

/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// A network namespace.
pub(super) struct Namespace(File);

impl Namespace {
    /// Makes a namespace whose loopback interface is up.
    pub(super) fn new() -> Result<Self> {
        let home = own()?;
        unshare(CloneFlags::CLONE_NEWNET)
            .context("cannot make a network namespace, which takes root")?;
        let made = own();
        enter(&home)?;
        let namespace = Self(made?);
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Runs a closure in this namespace. Its sockets and child processes stay there.
    pub(super) fn inside<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let home = own()?;
        enter(&self.0)?;
        let result = work();
        enter(&home)?;
        result
    }

    /// Runs `ip` in this namespace.
    pub(super) fn ip(&self, arguments: &[&str]) -> Result<()> {
        let mut ip = Command::new("ip");
        ip.args(arguments);
        let output = self.inside(|| ip.output().context("cannot run ip"))?;
        ensure!(
            output.status.success(),
            "ip {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(())
    }

    /// A path that `ip` accepts for it while this value lives.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

fn own() -> Result<File> {
    File::open(OWN).with_context(|| format!("cannot open {OWN}"))
}

/// Moves the calling thread.
fn enter(namespace: &File) -> Result<()> {
    setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).context("cannot enter a network namespace")
}
