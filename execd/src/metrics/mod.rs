//! Resource metrics of the sandbox (contract: execd §11): limits and use of its control group, or
//! of the machine if there is no group.

mod cgroup;
mod meter;
mod routes;

pub use meter::Meter;
pub(crate) use routes::{remember, routes};

use std::path::PathBuf;

/// Mount points of the kernel's file systems.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys/fs/cgroup`.
    pub cgroup: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            cgroup: "/sys/fs/cgroup".into(),
        }
    }
}
