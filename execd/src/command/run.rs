//! Starting a command.

use std::{io, os::unix::process::CommandExt, process::Stdio, sync::Arc, time::Instant};

use tracing::{debug, info};

use super::{plan::Plan, store::Record};
use crate::{
    app::App,
    error::ApiResult,
    output::{End, Outcome, Output, Pipes, Pump, Run, Sink, Spool},
    process::{Exit, run_as},
    redact,
};

/// Starts a command. From here on it runs whatever the client does.
///
/// # Errors
/// When too many run, or pipes cannot be made.
pub(super) fn start(app: &App, plan: Plan) -> ApiResult<Run> {
    let id = uuid::Uuid::new_v4().simple().to_string();
    let background = plan.background;
    debug!(id, command = redact::shown(&plan.content), "command wanted");
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
            let (sink, output) = match record.log() {
                Some(log) => {
                    let launched = Outcome::ended(Exit::Code(0), None);
                    (Sink::Log(Arc::clone(log)), Output::Background(launched))
                }
                None => {
                    let spool = Arc::new(Spool::new());
                    (Sink::Spool(Arc::clone(&spool)), Output::Foreground(spool))
                }
            };
            let pump = Pump {
                process,
                sink,
                pipes,
                began,
                timeout: plan.timeout,
            };
            app.tasks
                .spawn("command", attend(pump, record, app.clone()));
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

/// The task of one command.
async fn attend(mut pump: Pump, record: Arc<Record>, app: App) {
    let outcome = pump.until_end().await;
    info!(id = record.id(), end = ?outcome.end, "command ended");
    app.commands.finish(&record, &outcome);
    if let Sink::Spool(spool) = &pump.sink {
        spool.finish(outcome);
    }
    pump.linger(&app.outputs, app.tasks.stopping()).await;
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
