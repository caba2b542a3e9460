//! Lifecycle hooks: a program that runs before the user's entry point, and programs that run on a
//! schedule (contract: execd A9.3).
//!
//! ```text
//!  OPENSANDBOX_LIFECYCLE ─▶ check ─▶ keep (0600) ─▶ port open ─▶ preStart ─▶ entry point
//!        absent: what was kept ──────┘                             │    └──▶ periodic hooks
//!                                                                  └ fails: its status, nothing else starts
//! ```

mod config;
mod periodic;
mod pre_start;
mod schedule;
mod status;
mod store;

use std::{io, path::PathBuf};

pub use config::ConfigError;
pub(crate) use config::Lifecycle;
pub use pre_start::PreStart;
pub use status::StatusFile;

use tracing::warn;

use crate::{
    base::Base,
    env::{Variables, names},
    hardening::ProcessHardening,
    process::{Process, Program},
};

/// Advice for the case that execd does not trust the stored hooks.
const REMEDY: &str = "name another place in EXECD_LIFECYCLE_CONFIG, or leave this place out of \
                      allowed_writable in the isolation file";

/// Reason why the hooks cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The hooks in the environment break a rule.
    #[error("invalid {}", names::HOOKS)]
    Environment(#[source] ConfigError),
    /// The stored hooks break a rule.
    #[error("invalid lifecycle hooks in {path}")]
    Kept {
        /// File of the stored hooks.
        path: PathBuf,
        /// Cause.
        #[source]
        source: ConfigError,
    },
    /// The stored hooks are unreadable or untrusted.
    #[error("cannot use the lifecycle hooks in {path}")]
    Unreadable {
        /// File of the stored hooks.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The preStart hook cannot be started.
    #[error("cannot start the preStart hook {name:?}")]
    NotStarted {
        /// Name of the program.
        name: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
}

impl HookError {
    /// Exit status of the daemon. For a program that cannot be started it follows the shell's
    /// convention.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotStarted { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::NotStarted { .. } => 126,
            _ => 1,
        }
    }
}

/// Hooks of this sandbox.
#[derive(Debug, Default)]
pub struct Hooks {
    lifecycle: Lifecycle,
    status: Option<StatusFile>,
}

impl Hooks {
    /// Loads the hooks from the environment and stores them for the next start. Without any, loads
    /// the stored hooks, unless a process with fewer rights than hooks may have written them.
    ///
    /// # Errors
    /// When the hooks break a rule, or the environment names a file of stored hooks that is
    /// unusable.
    pub fn load(
        own: &Variables,
        status: Option<StatusFile>,
        hardening: &ProcessHardening,
    ) -> Result<Self, HookError> {
        let kept_at = store::path(own);
        let given = own
            .text(names::HOOKS)
            .filter(|text| !text.trim().is_empty());
        let lifecycle = match (given, kept_at) {
            (Some(text), kept_at) => {
                let lifecycle = Lifecycle::read(&text).map_err(HookError::Environment)?;
                // The hooks of this start work in any case.
                if let Some(path) = kept_at {
                    match store::keep(&path, &lifecycle, hardening) {
                        Ok(None) => {}
                        Ok(Some(reason)) => warn!(
                            path = %path.display(), %reason, remedy = REMEDY,
                            "lifecycle hooks are stored where the next start will not trust them"
                        ),
                        Err(error) => {
                            let path = path.display();
                            warn!(%path, %error, "lifecycle hooks cannot be stored");
                        }
                    }
                }
                lifecycle
            }
            (None, Some(path)) => match store::kept(&path, hardening) {
                Ok(None) => Lifecycle::default(),
                Ok(Some(text)) => {
                    let broken = |source| HookError::Kept { path, source };
                    Lifecycle::read(&text).map_err(broken)?
                }
                Err(source) if store::is_named(own) => {
                    return Err(HookError::Unreadable { path, source });
                }
                // The environment does not name this file: an image may set another user's home
                // directory, and commands may write anything there.
                Err(error) => {
                    warn!(path = %path.display(), %error, "stored lifecycle hooks are ignored");
                    Lifecycle::default()
                }
            },
            (None, None) => Lifecycle::default(),
        };
        Ok(Self { lifecycle, status })
    }

    /// Replaces the hooks.
    pub(crate) fn replaced(self, lifecycle: Lifecycle) -> Self {
        Self { lifecycle, ..self }
    }

    /// Starts the tasks of the periodic hooks.
    pub fn start_periodic(&self, base: &Base) {
        for hook in &self.lifecycle.periodic {
            base.tasks.spawn_abortable(
                "periodic hook",
                periodic::run_to_end(base.clone(), hook.clone()),
            );
        }
    }
}

/// Starts the program of a hook in its own process group. Its output goes to the daemon's output.
/// Hooks set up the sandbox, so they are not hardened. They get the user's variables, unless the
/// user's processes have fewer rights than hooks.
fn start(base: &Base, argv: &[String]) -> io::Result<Process> {
    use std::{os::unix::process::CommandExt, process::Stdio};

    let variables = if base.processes.hardening().is_in_force() {
        base.environment.for_trusted()
    } else {
        base.environment.for_user()
    };
    let cwd = std::env::current_dir().ok();
    let argv = argv.iter().map(Into::into).collect();
    let program = Program::direct(argv, &variables, cwd.as_deref())?;
    let mut command = program.command(&variables);
    command.stdin(Stdio::null()).process_group(0);
    base.processes.spawn_own(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_named_hook_file_must_be_readable() {
        let hardening = ProcessHardening::default();
        let load =
            |name, value| Hooks::load(&Variables::from_iter([(name, value)]), None, &hardening);
        let home = load("HOME", "/dev/null").unwrap();
        assert_eq!(home.lifecycle, Lifecycle::default());
        let named = load(names::HOOKS_FILE, "/dev/null/x").unwrap_err();
        assert!(matches!(named, HookError::Unreadable { .. }), "{named}");
    }
}
