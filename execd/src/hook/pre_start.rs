//! Hook that runs before the entry point.

use std::time::Duration;

use osb_protocol::execd::log_message::{PRE_START_FAILED, PRE_START_TIMEOUT};
use tokio::time::timeout;
use tracing::{error, info};

use super::{HookError, Hooks, start};
use crate::{
    base::Base,
    limits,
    process::{Exit, Process},
    signals::{Signals, Supervised, supervise},
};

/// Outcome of the preStart hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreStart {
    /// Success, or no hook.
    Done,
    /// Failure or timeout, with the exit status.
    Failed(Exit),
    /// The daemon received a stop signal meanwhile; the hook's exit status.
    StopRequested(Exit),
}

impl Hooks {
    /// Runs the hook to completion and forwards signals to it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn pre_start(
        &self,
        base: &Base,
        signals: &mut Signals,
    ) -> Result<PreStart, HookError> {
        let outcome = self.run_pre_start(base, signals).await;
        if let Some(status) = &self.status {
            status.done(matches!(outcome, Ok(PreStart::Done)));
        }
        outcome
    }

    async fn run_pre_start(
        &self,
        base: &Base,
        signals: &mut Signals,
    ) -> Result<PreStart, HookError> {
        let Some(hook) = &self.lifecycle.pre_start else {
            return Ok(PreStart::Done);
        };
        let limit = Duration::from_secs(hook.timeout_seconds.into());
        if let Some(status) = &self.status {
            status.running(limit);
        }
        let process = start(base, &hook.command).map_err(|source| HookError::NotStarted {
            name: hook.command.first().cloned().unwrap_or_default(),
            source,
        })?;
        info!(
            pid = process.pid().as_raw_nonzero(),
            ?limit,
            "preStart hook started"
        );
        let supervised = timeout(limit, supervise(&process, signals)).await;
        let outcome = match supervised {
            Ok(Supervised {
                exit,
                stop_requested: true,
            }) => PreStart::StopRequested(exit),
            Ok(Supervised {
                exit: Exit::Code(0),
                ..
            }) => PreStart::Done,
            Ok(Supervised { exit, .. }) => PreStart::Failed(exit),
            Err(_) => {
                error!(?limit, "{PRE_START_TIMEOUT}");
                PreStart::Failed(killed(&process).await)
            }
        };
        match outcome {
            PreStart::Failed(exit) => error!(%exit, "{PRE_START_FAILED}"),
            PreStart::Done | PreStart::StopRequested(_) => info!(?outcome, "preStart hook ended"),
        }
        Ok(outcome)
    }
}

/// Kills a process and returns its exit status. A process that cannot be killed counts as killed.
async fn killed(process: &Process) -> Exit {
    process.kill_tree();
    let exited = timeout(limits::HOOK_KILL, process.exited()).await;
    exited.unwrap_or(Exit::Signal {
        number: 9,
        core: false,
    })
}
