//! Starting a command.

use std::{
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Receiver;
use tracing::info;

use super::{
    plan::Plan,
    pump::{Pipe, Pump, Sink},
    spool::{Source, Spool},
    store::Record,
};
use crate::{
    app::App,
    error::ApiResult,
    process::{Exit, run_as},
};

/// How a command ended.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) end: End,
    /// When, in Unix milliseconds.
    pub(super) at: i64,
    /// Wall time since just before the start.
    pub(super) took: Duration,
}

/// The ways to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The process ended, killed by us when its time was up.
    Exited {
        exit: Exit,
        timed_out: Option<Duration>,
    },
    /// It never ran.
    NotStarted(String),
}

impl Outcome {
    pub(super) fn ended(exit: Exit, timed_out: Option<Duration>) -> Self {
        Self::now(End::Exited { exit, timed_out }, Duration::ZERO)
    }

    pub(super) fn now(end: End, took: Duration) -> Self {
        let at = Timestamp::now().as_millisecond();
        Self { end, at, took }
    }
}

impl End {
    /// Why it is no success, in lines for people; empty for a success.
    pub(super) fn reasons(&self) -> Vec<String> {
        match self {
            Self::Exited {
                exit: Exit::Code(0),
                ..
            } => Vec::new(),
            Self::Exited {
                exit,
                timed_out: None,
            } => vec![exit.to_string()],
            Self::Exited {
                exit,
                timed_out: Some(limit),
            } => {
                vec![exit.to_string(), format!("timeout after {limit:?}")]
            }
            Self::NotStarted(reason) => vec![reason.clone()],
        }
    }
}

/// A command on its way.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: String,
    pub(super) output: Output,
}

/// Where its events come from.
#[derive(Debug)]
pub(super) enum Output {
    Foreground(Arc<Spool>),
    /// Background: whether it was launched.
    Background(Outcome),
}

/// Starts a command. From here on it runs whatever the client does.
///
/// # Errors
/// When too many run, or pipes cannot be made.
pub(super) fn start(app: &App, plan: Plan) -> ApiResult<Run> {
    let id = uuid::Uuid::new_v4().simple().to_string();
    let background = plan.background;
    let record = app
        .commands
        .admit(Record::new(&id, plan.content, background))?;
    let began = Instant::now();
    let pipes = Pipes::new(background);
    let started = match (plan.program, pipes) {
        (Ok(program), Ok((ours, theirs))) => {
            let mut command = program.command(&plan.variables);
            command
                .stdin(Stdio::null())
                .stdout(theirs.stdout)
                .stderr(theirs.stderr)
                .process_group(0);
            if let Some(cwd) = &plan.cwd {
                command.current_dir(cwd);
            }
            if let Some(credentials) = &plan.credentials {
                run_as(&mut command, credentials);
            }
            let hint = plan.credentials.is_some();
            let spawned = app.processes.spawn(&mut command);
            spawned
                .map(|process| (process, ours))
                .map_err(|error| explain(&error, hint))
        }
        (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
    };
    match started {
        Ok((process, pipes)) => {
            info!(
                id,
                pid = process.pid().as_raw_nonzero(),
                background,
                "command started"
            );
            record.started(process.clone());
            let sink = Sink::new(&record);
            let output = match &sink {
                Sink::Spool(spool) => Output::Foreground(Arc::clone(spool)),
                Sink::Log(_) => Output::Background(Outcome::ended(Exit::Code(0), None)),
            };
            let pump = Pump {
                process,
                sink,
                pipes,
                record,
                began,
                timeout: plan.timeout,
                commands: app.commands.clone(),
                stopping: app.tasks.stopping().clone(),
            };
            app.tasks.spawn("command", pump.run());
            Ok(Run { id, output })
        }
        Err(reason) => {
            info!(id, reason, "command not started");
            let outcome = Outcome::now(End::NotStarted(reason), began.elapsed());
            let output = if background {
                app.commands.finish(&record, &outcome);
                Output::Background(outcome)
            } else {
                app.commands.forget(&id);
                let spool = Arc::new(Spool::new());
                spool.finish(outcome);
                Output::Foreground(spool)
            };
            Ok(Run { id, output })
        }
    }
}

fn explain(error: &io::Error, switching: bool) -> String {
    if switching && error.kind() == io::ErrorKind::PermissionDenied {
        return format!(
            "{error}: running as another user needs the capabilities SETUID and SETGID, which the \
             server may have dropped (docker.drop_capabilities)"
        );
    }
    error.to_string()
}

/// The child's ends of the pipes.
struct Pipes {
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Pipes {
    /// Two pipes, or one for both in the background.
    fn new(background: bool) -> io::Result<(Vec<Pipe>, Self)> {
        let pipe = |source| -> io::Result<(Pipe, OwnedFd)> {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&ours, true)?;
            let ours = Receiver::from_owned_fd(ours)?;
            Ok((Pipe::new(source, ours), theirs))
        };
        let (out, stdout) = pipe(Source::Stdout)?;
        if background {
            let stderr = stdout.try_clone()?;
            return Ok((vec![out], Self { stdout, stderr }));
        }
        let (err, stderr) = pipe(Source::Stderr)?;
        Ok((vec![out, err], Self { stdout, stderr }))
    }
}

impl Sink {
    fn new(record: &Record) -> Self {
        match record.log() {
            Some(log) => Self::Log(Arc::clone(log)),
            None => Self::Spool(Arc::new(Spool::new())),
        }
    }
}
