//! Lifecycle hooks: a program before the user's entry point, and programs at times (contract: execd
//! A9.3).
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

/// What helps where kept hooks are not believed.
const REMEDY: &str = "name another place in EXECD_LIFECYCLE_CONFIG, or leave this place out of \
                      allowed_writable in the isolation file";

/// Why the hooks cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// What the environment says breaks a rule.
    #[error("invalid {}", names::HOOKS)]
    Environment(#[source] ConfigError),
    /// What was kept breaks a rule.
    #[error("invalid lifecycle hooks in {path}")]
    Kept {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: ConfigError,
    },
    /// What was kept cannot be read, or is not to be believed.
    #[error("cannot use the lifecycle hooks in {path}")]
    Unreadable {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The first hook cannot be started.
    #[error("cannot start the preStart hook {name:?}")]
    NotStarted {
        /// Its program.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl HookError {
    /// Exit status of the daemon; of a program that cannot be started, as a shell has it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotStarted { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::NotStarted { .. } => 126,
            _ => 1,
        }
    }
}

/// The hooks of this sandbox.
#[derive(Debug, Default)]
pub struct Hooks {
    lifecycle: Lifecycle,
    status: Option<StatusFile>,
}

impl Hooks {
    /// Those in the environment, which are kept for the next start, else those that were kept, unless
    /// somebody may have written them who has fewer rights than hooks.
    ///
    /// # Errors
    /// When they break a rule, or were kept where the environment says and cannot be used.
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
                // They work until the next start in any case.
                if let Some(path) = kept_at {
                    match store::keep(&path, &lifecycle, hardening) {
                        Ok(None) => {}
                        Ok(Some(doubt)) => warn!(
                            path = %path.display(), %doubt, remedy = REMEDY,
                            "lifecycle hooks are kept where the next start will not believe them"
                        ),
                        Err(error) => {
                            let path = path.display();
                            warn!(%path, %error, "lifecycle hooks cannot be kept");
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
                // Nobody said that there are any: images may name a home that is another user's, and
                // commands may leave there what they like.
                Err(error) => {
                    warn!(path = %path.display(), %error, "no lifecycle hooks are looked for");
                    Lifecycle::default()
                }
            },
            (None, None) => Lifecycle::default(),
        };
        Ok(Self { lifecycle, status })
    }

    /// Others in place of these.
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

/// Starts the program of a hook, in a group of its own. Its output goes where the daemon's goes.
/// Hooks set the sandbox up, so they are not hardened. They get the user's variables, unless the
/// user's processes have fewer rights than they.
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
    fn a_home_that_cannot_be_read_has_no_hooks_and_a_file_that_was_named_must_be_read() {
        let hardening = ProcessHardening::default();
        let load =
            |name, value| Hooks::load(&Variables::from_iter([(name, value)]), None, &hardening);
        let home = load("HOME", "/dev/null").unwrap();
        assert_eq!(home.lifecycle, Lifecycle::default());
        let named = load(names::HOOKS_FILE, "/dev/null/x").unwrap_err();
        assert!(matches!(named, HookError::Unreadable { .. }), "{named}");
    }
}
