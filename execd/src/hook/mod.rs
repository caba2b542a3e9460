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

use std::{
    io,
    path::{Path, PathBuf},
};

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
    /// Loads the hooks from the environment and stores them for the next start of the sandbox.
    /// Without any, loads the stored hooks, unless a process with fewer rights than hooks may have
    /// written them, or they are not known to be of this sandbox.
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
                    keep(own, &path, &lifecycle, hardening);
                }
                lifecycle
            }
            (None, Some(path)) => stored(own, path, hardening)?,
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

/// Id of the sandbox, which stays the same when its container restarts. `None` if the daemon was
/// started without one.
fn sandbox_id(own: &Variables) -> Option<String> {
    own.text(names::SANDBOX).filter(|id| !id.is_empty())
}

/// Stores the hooks of this start for the next one.
fn keep(own: &Variables, path: &Path, lifecycle: &Lifecycle, hardening: &ProcessHardening) {
    let Some(sandbox) = sandbox_id(own) else {
        // No later start could know that they are its own.
        let variable = names::SANDBOX;
        warn!(
            variable,
            "lifecycle hooks are not stored, because the sandbox has no id"
        );
        return;
    };
    match store::keep(path, &sandbox, lifecycle, hardening) {
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

/// Loads the stored hooks of this sandbox.
///
/// A snapshot copies the file of its sandbox into an image, so the file may be another sandbox's.
/// Hooks must not run in a sandbox whose create did not ask for them: they run only if the file and
/// this start name the same sandbox, not if either names none.
fn stored(
    own: &Variables,
    path: PathBuf,
    hardening: &ProcessHardening,
) -> Result<Lifecycle, HookError> {
    let text = match store::kept(&path, hardening) {
        Ok(None) => return Ok(Lifecycle::default()),
        Ok(Some(text)) => text,
        Err(source) if store::is_named(own) => {
            return Err(HookError::Unreadable { path, source });
        }
        // The environment does not name this file: an image may set another user's home
        // directory, and commands may write anything there.
        Err(error) => {
            warn!(path = %path.display(), %error, "stored lifecycle hooks are ignored");
            return Ok(Lifecycle::default());
        }
    };
    let (sandbox, owner) = (sandbox_id(own), store::owner(&text));
    if owner.is_some() && owner == sandbox {
        return Lifecycle::read(&text).map_err(|source| HookError::Kept { path, source });
    }
    warn!(
        path = %path.display(), ?owner, ?sandbox,
        "stored lifecycle hooks are ignored, because they are not known to be of this sandbox"
    );
    if owner.is_some()
        && sandbox.is_some()
        && let Err(error) = std::fs::remove_file(&path)
    {
        warn!(path = %path.display(), %error, "hooks of another sandbox cannot be removed");
    }
    Ok(Lifecycle::default())
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
    fn stored_hooks_are_loaded_only_by_the_sandbox_that_stored_them() {
        // Outside /tmp: isolated sessions may write there, so files in it are not trusted.
        let place = tempfile::tempdir_in("/var/lib").unwrap();
        let path = place.path().join("hooks.toml");
        let hardening = ProcessHardening::default();
        let hooks =
            r#"{"preStart":{"command":["a"]},"periodic":[{"schedule":"@daily","command":["b"]}]}"#;
        let load = |sandbox: Option<&str>, hooks: &str| {
            let mut own = Variables::from_iter([(names::HOOKS_FILE, path.as_os_str())]);
            own.set(names::HOOKS, hooks);
            if let Some(sandbox) = sandbox {
                own.set(names::SANDBOX, sandbox);
            }
            Hooks::load(&own, None, &hardening).map(|hooks| hooks.lifecycle)
        };
        let (given, none) = (Lifecycle::read(hooks).unwrap(), Lifecycle::default());
        assert_eq!(load(None, hooks).unwrap(), given);
        assert!(!path.exists(), "no sandbox could claim them");
        for _ in 0..2 {
            assert_eq!(load(Some("s-1"), hooks).unwrap(), given);
            assert_eq!(load(Some("s-1"), "").unwrap(), given);
            for unknown in [None, Some("")] {
                assert_eq!(load(unknown, "").unwrap(), none);
                assert!(path.exists(), "the sandbox may start again");
            }
            assert_eq!(load(Some("s-2"), "").unwrap(), none);
            assert!(!path.exists(), "of another sandbox");
            assert_eq!(load(Some("s-1"), "").unwrap(), none);
        }
        let unnamed = toml::to_string(&given).unwrap();
        for text in [unnamed.as_str(), "[", "sandboxId = 1\npreStart = 1"] {
            std::fs::write(&path, text).unwrap();
            for sandbox in [None, Some(""), Some("s-1")] {
                assert_eq!(load(sandbox, "").unwrap(), none, "{text:?} {sandbox:?}");
                assert!(path.exists(), "it names no other sandbox");
            }
        }
        std::fs::write(&path, "sandboxId = \"s-1\"\npreStart = 1").unwrap();
        let broken = load(Some("s-1"), "").unwrap_err();
        assert!(matches!(broken, HookError::Kept { .. }), "{broken}");
        assert_eq!(
            load(Some("s-2"), "").unwrap(),
            none,
            "broken, but not its own"
        );
    }

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
