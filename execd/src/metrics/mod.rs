//! What the sandbox has and uses (contract: execd §11): the limits and the use of its control group,
//! those of the machine only where there is no group.

mod cgroup;
mod host;
mod meter;
mod routes;

pub use meter::Meter;
pub(crate) use routes::{remember, routes};

use std::path::PathBuf;

/// Where the kernel shows itself.
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
