//! Init process: the daemon supervises the user's entry point (contract: execd §15, A9.2, A9.4).
//!
//! It starts the entry point once its port is open and every route answers, forwards signals to it,
//! reaps orphans, and exits with its status. Nothing here needs a shell unless the user asked for
//! one.

mod end;
mod entrypoint;
mod script;

use std::ffi::OsString;

use osb_service::ErrorChain;
use rustix::process::{getpid, set_child_subreaper};
use tracing::{info, warn};

pub use end::{Stop, end_children};
pub use entrypoint::EntrypointError;

use crate::{
    base::Base,
    env::{self, Environment, Variables, names},
    hook::{HookError, Hooks, PreStart},
    process::{Exit, Process},
    runtime_init::{EntrypointPolicy, Orders, wait_for_stop},
    signals::{Signals, Supervised, supervise},
};

/// Default path of the environment file.
const DEFAULT_ENV_FILE: &str = "/opt/opensandbox/.env";

/// Reason why the entry point does not run.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The entry point cannot be started.
    #[error(transparent)]
    Entrypoint(#[from] EntrypointError),
    /// The preStart hook cannot be started.
    #[error(transparent)]
    Hook(#[from] HookError),
}

impl InitError {
    /// Exit status of the daemon.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Entrypoint(error) => error.exit_code(),
            Self::Hook(error) => error.exit_code(),
        }
    }
}

/// Runs the preStart hook, starts the entry point, and supervises it until it ends. A failed hook
/// ends the daemon with the hook's status. With `orders`, startup waits for the order of the
/// control plane, which may keep the entry point from starting.
///
/// # Errors
/// When the hook or the entry point cannot be started.
pub async fn run(
    base: &Base,
    argv: Vec<OsString>,
    hooks: Hooks,
    signals: &mut Signals,
    orders: Option<Orders>,
) -> Result<Exit, InitError> {
    if !getpid().is_init()
        && let Err(error) = set_child_subreaper(Some(getpid()))
    {
        warn!(%error, "orphans will not be reaped");
    }
    base.environment.replace(with_env_file(&base.environment));
    let Some(orders) = orders else {
        // Without orders all routes answer already.
        let started = start(base, Some(argv), &hooks, signals, || ()).await?;
        return Ok(supervise_until_end(started, signals).await);
    };
    let Some((mut order, hooks)) = orders.next(base, hooks, signals).await else {
        return Ok(Exit::Code(0));
    };
    let argv = order.argv.take().unwrap_or(argv);
    let argv = (order.entrypoint == EntrypointPolicy::Restart).then_some(argv);
    let started = start(base, argv, &hooks, signals, || order.open()).await;
    match &started {
        Ok(Started::Entrypoint(_)) => order.done(None),
        Ok(Started::Nothing) => order.done(Some(NOT_STARTED)),
        Ok(Started::Ended(exit)) => {
            order.failed(format!("it ended before the entry point started: {exit}"));
        }
        Err(error) => order.failed(ErrorChain(error).to_string()),
    }
    Ok(supervise_until_end(started?, signals).await)
}

/// Warning for the control plane whose order kept the entry point from starting.
const NOT_STARTED: &str =
    "entrypointPolicy is keep, so the entry point of the container was not started";

/// Result of the startup.
enum Started {
    Entrypoint(Process),
    /// No entry point runs.
    Nothing,
    /// The daemon ended before the entry point started.
    Ended(Exit),
}

/// Runs the steps before the entry point, opens the routes that it may need, and starts it, if
/// there is one.
async fn start(
    base: &Base,
    argv: Option<Vec<OsString>>,
    hooks: &Hooks,
    signals: &mut Signals,
    open: impl FnOnce(),
) -> Result<Started, InitError> {
    if let Some(exit) = script::source(base, signals).await {
        info!(%exit, "stopped before the entry point was started");
        return Ok(Started::Ended(exit));
    }
    match hooks.pre_start(base, signals).await? {
        PreStart::Done => {}
        PreStart::Failed(exit) | PreStart::StopRequested(exit) => return Ok(Started::Ended(exit)),
    }
    open();
    hooks.start_periodic(base);
    let Some(argv) = argv else {
        return Ok(Started::Nothing);
    };
    let process = entrypoint::start(base, argv)?;
    info!(pid = process.pid().as_raw_nonzero(), "entry point started");
    Ok(Started::Entrypoint(process))
}

/// Supervises the entry point until it ends.
async fn supervise_until_end(started: Started, signals: &mut Signals) -> Exit {
    match started {
        Started::Entrypoint(process) => {
            let Supervised { exit, .. } = supervise(&process, signals).await;
            info!(%exit, "entry point ended");
            exit
        }
        Started::Nothing => {
            wait_for_stop(signals).await;
            Exit::Code(0)
        }
        Started::Ended(exit) => exit,
    }
}

/// Sets the variable that names the environment file, and ensures that the file exists.
fn with_env_file(environment: &Environment) -> Variables {
    let mut variables = (*environment.own()).clone();
    if variables
        .get(names::ENVIRONMENT_FILE)
        .is_none_or(std::ffi::OsStr::is_empty)
    {
        variables.set(names::ENVIRONMENT_FILE, DEFAULT_ENV_FILE);
    }
    if let Some(path) = env::file_path(&variables)
        && let Err(error) = environment.make_file(&path)
    {
        warn!(path = %path.display(), %error, "environment file cannot be made");
    }
    variables
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs, os::unix::fs::symlink, sync::Arc};

    use osb_service::Supervisor;

    use super::*;
    use crate::links::LinkResolver;

    #[tokio::test]
    async fn routes_open_before_the_entry_point_starts() {
        let environment = Environment::new(Variables::default());
        let base = Base::new(environment, Supervisor::new());
        let mut signals = Signals::stopping().unwrap();
        let opened = Cell::new(false);
        let argv = Some(vec!["/nonexistent/program".into()]);
        let hooks = Hooks::default();
        // An entry point that cannot start: no later step runs.
        let started = start(&base, argv, &hooks, &mut signals, || opened.set(true)).await;
        assert!(started.is_err());
        assert!(opened.get());
    }

    #[test]
    fn the_environment_file_is_not_created_through_a_planted_link() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().canonicalize().unwrap();
        let at = |name: &str| place.join(name);
        for name in ["shared", "closed"] {
            fs::create_dir(at(name)).unwrap();
        }
        symlink("../closed", at("shared/way")).unwrap();
        for (file, made) in [("shared/way/new/.env", false), ("own/new/.env", true)] {
            let variables = Variables::from_iter([(names::ENVIRONMENT_FILE, at(file))]);
            let environment = Environment::new(variables.clone());
            environment.set_link_resolver(Arc::new(LinkResolver::new(vec![at("shared")])));
            assert_eq!(with_env_file(&environment), variables);
            assert_eq!(at(file).exists(), made, "{file}");
        }
        assert!(!at("closed/new").exists());
    }
}
