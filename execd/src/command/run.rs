//! Start of a command.

use std::{
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

use osb_log::redact;
use osb_protocol::execd::history::CommandKind;
use rustix::{
    io::Errno,
    thread::{CapabilitySet, capabilities},
};
use tracing::{debug, info};

use super::{
    plan::Plan,
    store::{Commands, Kept, Record},
};
use crate::{
    base::Base,
    error::ApiResult,
    hardening::ProcessHardening,
    history::Begun,
    identity::{Credentials, refusal_hint},
    output::{End, EventReader, NOT_STARTED, Outcome, Pipes, Pump, Replay, Sink, Writer},
    process::{Exit, Process},
    telemetry::Operation,
};

/// Started run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) id: String,
    /// Reader of its events.
    pub(super) reader: EventReader,
}

/// What happens to the record of a foreground command that did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotStarted {
    /// The record is removed (contract: execd §5.5).
    Forget,
    /// The record stays, for later requests with its key.
    Keep,
}

/// Starts a command. It then runs independently of the client.
///
/// # Errors
/// When too many commands run.
pub(super) fn start(
    base: &Base,
    commands: &Commands,
    plan: Plan,
    not_started: NotStarted,
) -> ApiResult<Run> {
    let id = uuid::Uuid::new_v4().simple().to_string();
    let background = plan.background;
    debug!(id, command = redact::shown(&plan.content), "command wanted");
    let (writer, reader) = Writer::new(&id, Replay::Recent, &base.outputs);
    let kept = Kept {
        events: Some(Arc::clone(writer.journal())),
        log: background.then(Arc::default),
    };
    let log = kept.log.clone();
    let begun = Begun {
        id: Some(&id),
        kind: match background {
            true => CommandKind::Background,
            false => CommandKind::Foreground,
        },
        command: &plan.content,
        cwd: plan.cwd.as_deref().map(|cwd| cwd.display().to_string()),
        uid: plan.credentials.as_ref().map(|user| user.uid),
    };
    let number = base.history.begin(begun);
    let record = Record::new(&id, plan.content, background, kept);
    let record = match commands.admit(record) {
        Ok(record) => record,
        Err(error) => {
            base.history
                .end(number, NOT_STARTED, Some(error.to_string()));
            return Err(error);
        }
    };
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
            let switching = plan.credentials.is_some();
            let spawned = spawn(
                base,
                &mut command,
                plan.credentials.as_ref(),
                plan.cwd.as_deref(),
            );
            spawned.map(|process| (process, ours)).map_err(|error| {
                explain(
                    &error,
                    switching && cannot_switch(),
                    base.processes.hardening(),
                )
            })
        }
        (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
    };
    let ended = match started {
        Ok((process, pipes)) => {
            info!(
                id,
                pid = process.pid().as_raw_nonzero(),
                background,
                "command started"
            );
            record.started(process.clone());
            let (sink, ended) = match log {
                Some(log) => {
                    let launched = Outcome::ended(Exit::Code(0), None);
                    (Sink::Log(log), Some((writer, launched)))
                }
                None => (Sink::Events(writer), None),
            };
            let pump = Pump {
                process,
                sink,
                pipes,
                began,
                timeout: plan.timeout,
            };
            let task = run_to_end(pump, record, number, base.clone(), commands.clone());
            base.tasks.spawn("command", task);
            ended
        }
        Err(reason) => {
            info!(id, reason, "command not started");
            let outcome = Outcome::now(End::NotStarted(reason), began.elapsed());
            base.telemetry.execution(Operation::Command, &outcome);
            base.history
                .end(number, outcome.exit_code(), outcome.error());
            if background || not_started == NotStarted::Keep {
                commands.finish(&record, &outcome);
            } else {
                commands.forget(&id);
            }
            Some((writer, outcome))
        }
    };
    if let Some((writer, outcome)) = ended {
        writer.end(&outcome);
    }
    Ok(Run { id, reader })
}

/// Starts a command in its directory, and enters the directory as the command's user: a directory
/// that denies that user access is also denied to the command.
fn spawn(
    base: &Base,
    command: &mut Command,
    credentials: Option<&Credentials>,
    cwd: Option<&Path>,
) -> io::Result<Process> {
    match (credentials, cwd) {
        (Some(credentials), cwd) => base.processes.spawn_as(command, credentials, cwd),
        (None, Some(cwd)) => base.processes.spawn(command.current_dir(cwd)),
        (None, None) => base.processes.spawn(command),
    }
}

/// Supervises one command to its end.
async fn run_to_end(
    mut pump: Pump,
    record: Arc<Record>,
    number: u64,
    base: Base,
    commands: Commands,
) {
    let outcome = pump.until_end().await;
    info!(id = record.id(), end = ?outcome.end, "command ended");
    base.telemetry.execution(Operation::Command, &outcome);
    base.history
        .end(number, outcome.exit_code(), outcome.error());
    commands.finish(&record, &outcome);
    pump.sink.finish(&outcome).await;
    if let Some(events) = record.output().events {
        events.move_complete_to_disk().await;
        commands.recount(&record);
    }
    pump.linger(&base.outputs, base.tasks.stopping()).await;
}

/// Whether the daemon lacks the capabilities to run commands as another user.
fn cannot_switch() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    capabilities(None).map_or(true, |own| !own.effective.contains(needed))
}

/// Reason why a command did not start, with a hint where the error alone would mislead.
fn explain(error: &io::Error, cannot_switch: bool, hardening: &ProcessHardening) -> String {
    let hint = match Errno::from_io_error(error) {
        Some(Errno::PERM) if cannot_switch => Some(refusal_hint()),
        _ => hardening.hint(error).map(Into::into),
    };
    match hint {
        Some(hint) => format!("{error}: {hint}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_capabilities_are_reported() {
        let hardening = ProcessHardening::default();
        for (errno, cannot_switch, named) in [
            (Errno::PERM, true, true),
            (Errno::PERM, false, false),
            (Errno::ACCESS, true, false),
            (Errno::NOENT, true, false),
        ] {
            let text = explain(&errno.into(), cannot_switch, &hardening);
            assert_eq!(text.contains(&refusal_hint()), named, "{text}");
            assert!(
                text.starts_with(&io::Error::from(errno).to_string()),
                "{text}"
            );
        }
    }
}
