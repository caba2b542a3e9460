//! Version and commit of a build.

use std::fmt;

/// Release of all components: they are versioned together.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `debug` or `release`.
const PROFILE: &str = if cfg!(debug_assertions) {
    "debug"
} else {
    "release"
};

/// Build information, for `--version` and the first line of the log.
///
/// The commit comes from the program's own `main`, so that a new commit rebuilds only the programs
/// themselves: `BuildInfo::of(option_env!("OSB_BUILD_COMMIT"))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildInfo {
    commit: Option<&'static str>,
}

impl BuildInfo {
    /// Creates the information about a build of `commit`, as `cargo xtask build` sets it; `None` for
    /// a developer's build.
    #[must_use]
    pub const fn of(commit: Option<&'static str>) -> Self {
        Self { commit }
    }
}

impl fmt::Display for BuildInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commit = self.commit.unwrap_or("dev");
        write!(f, "{VERSION} ({commit}, {PROFILE})")
    }
}
