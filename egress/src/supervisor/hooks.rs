//! Programs before a launch and after an exit (contract: egress §8.1).

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use osb_service::ErrorChain;
use rustix::process::{Pid, Signal};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    children::{self, Children, Exit},
    duration,
    events::{Event, EventLog, Kind, milliseconds},
};

/// Programs that run one after the other.
#[derive(Debug)]
pub(super) struct Hooks<'a> {
    /// [`Kind::Prestart`] or [`Kind::Postexit`].
    pub(super) kind: Kind,
    pub(super) programs: &'a [PathBuf],
    /// Number of the launch.
    pub(super) attempt: u64,
    /// Variables in addition to those of the supervisor.
    pub(super) variables: &'a [(&'static str, String)],
    /// Time for each program.
    pub(super) timeout: Duration,
    /// When this is cancelled, the program is killed and no other one is started.
    pub(super) stop: &'a CancellationToken,
}

/// Reason why a program failed.
#[derive(Debug, thiserror::Error)]
enum HookError {
    #[error("cannot be started")]
    Start(#[source] io::Error),
    #[error("exit status {0}")]
    Code(i32),
    #[error("signal: {0}")]
    Signal(String),
    #[error("without an exit status")]
    Unknown,
    #[error("killed after {}", duration::format(*.0))]
    TimedOut(Duration),
    #[error("killed because the supervisor stops")]
    Stopped,
}

impl Hooks<'_> {
    /// Runs all of them, also after a failure. Returns whether all succeeded.
    pub(super) async fn run(&self, children: &mut Children, events: &mut EventLog) -> bool {
        let mut succeeded = true;
        for program in self.programs {
            if self.stop.is_cancelled() {
                return false;
            }
            let event = self.run_one(program, children).await;
            if let Some(error) = &event.error {
                warn!(hook = %program.display(), error, "a hook failed");
                succeeded = false;
            }
            events.write(event);
        }
        succeeded
    }

    /// Runs one. The event has an error if it failed.
    async fn run_one(&self, program: &Path, children: &mut Children) -> Event {
        let started = Instant::now();
        let mut command = Command::new(program);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let (exit, error) = match children::start(&mut command, Stdio::null()) {
            Ok(child) => self.watch(child, children).await,
            Err(error) => (Exit::Unknown, Some(HookError::Start(error))),
        };
        Event {
            attempt: Some(self.attempt),
            exit_code: Some(exit.code()),
            signal: exit.signal(),
            duration_ms: Some(milliseconds(started.elapsed())),
            hook: Some(program.to_string_lossy().into_owned()),
            error: error.map(|error| ErrorChain(&error).to_string()),
            ..Event::new(self.kind)
        }
    }

    async fn watch(&self, child: Pid, children: &mut Children) -> (Exit, Option<HookError>) {
        let error = tokio::select! {
            biased;
            exit = children.exit_of(child) => return (exit, HookError::of(exit)),
            () = self.stop.cancelled() => HookError::Stopped,
            () = sleep(self.timeout) => HookError::TimedOut(self.timeout),
        };
        children::signal_group(child, Signal::KILL);
        (children.exit_of(child).await, Some(error))
    }
}

impl HookError {
    fn of(exit: Exit) -> Option<Self> {
        match (exit, exit.signal()) {
            (Exit::Code(0), _) => None,
            (Exit::Code(code), _) => Some(Self::Code(code)),
            (_, Some(signal)) => Some(Self::Signal(signal)),
            (_, None) => Some(Self::Unknown),
        }
    }
}
