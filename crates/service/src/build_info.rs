//! Which build this is.

/// Release of all components: they are versioned together.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Git commit, as `cargo xtask build` sets it; `dev` otherwise.
pub const COMMIT: &str = match option_env!("OSB_BUILD_COMMIT") {
    Some(commit) => commit,
    None => "dev",
};

/// `debug` or `release`.
pub const PROFILE: &str = if cfg!(debug_assertions) {
    "debug"
} else {
    "release"
};

/// One line for `--version` and the first line of the log.
#[must_use]
pub fn summary() -> String {
    format!("{VERSION} ({COMMIT}, {PROFILE})")
}
