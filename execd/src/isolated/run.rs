//! Foreground run (contract: execd A4.4).

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use osb_protocol::execd::history::CommandKind;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    Isolation,
    guest::{Guest, How, RunError, States},
    plan::Order,
    quota,
    session::{Busy, Session},
    wire,
};
use crate::{
    history::Begun,
    output::{
        End, EventReader, NOT_STARTED, Outcome, OutputPipes, Pump, Replay, Sink, Subject, Writer,
    },
    process::Exit,
    telemetry::Operation,
};

/// Error class that carries an exit code.
const EXIT_ERROR: &str = "ExitError";
/// Error class of a run that exceeded its time limit.
const TIMEOUT_ERROR: &str = "TimeoutError";
/// Error class of every other error.
const RUNTIME_ERROR: &str = "RuntimeError";

/// Code of a run with its settings.
#[derive(Clone, Debug)]
pub(super) struct Code {
    pub(super) text: String,
    pub(super) envs: Vec<(String, String)>,
    pub(super) timeout: Option<Duration>,
}

impl Code {
    /// Entry of the history.
    pub(super) fn begun(&self) -> Begun<'_> {
        Begun {
            id: None,
            kind: CommandKind::Isolated,
            command: &self.text,
            cwd: None,
            uid: None,
        }
    }

    /// Order for the init. `report` requests the state after the run.
    pub(super) fn order(&self, session: &Session, restore: bool, report: bool) -> Order {
        let first = || session.variables.iter();
        let variables = if restore {
            Vec::new()
        } else {
            first()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect()
        };
        Order {
            code: self.text.clone(),
            variables,
            search: session.variables.get("PATH").map(ToOwned::to_owned),
            envs: self.envs.clone(),
            cwd: session.wanted.overlays[0].real.clone(),
            restore,
            report,
            writable: None,
        }
    }
}

/// Runs the code when its turn comes. A single client reads the events; when it disconnects, the
/// run ends.
pub(super) fn start(isolation: &Isolation, session: Arc<Session>, code: Code) -> EventReader {
    let id = uuid::Uuid::new_v4().to_string();
    let (writer, reader) = Writer::new(&id, Replay::Never, &isolation.base.outputs);
    let busy = session.busy();
    let run = run_to_end(isolation.clone(), session, code, writer, busy);
    isolation.base.tasks.spawn("isolated run", run);
    reader
}

fn failed(reason: impl Into<String>) -> End {
    let reason = reason.into();
    End::Failed {
        name: RUNTIME_ERROR,
        value: reason.clone(),
        reason,
    }
}

async fn run_to_end(
    isolation: Isolation,
    session: Arc<Session>,
    code: Code,
    writer: Writer,
    busy: Busy,
) {
    let not_run = async |writer: Writer, reason: &str| {
        let outcome = Outcome::now(failed(reason), Duration::ZERO);
        isolation
            .base
            .telemetry
            .execution(Operation::Isolated, &outcome);
        writer.finish(&outcome).await;
    };
    let left = writer.journal().left();
    let turn = tokio::select! {
        turn = session.turn.lock() => turn,
        () = session.deleted.cancelled() => return not_run(writer, &terminated(&isolation)).await,
        () = left.cancelled() => return,
        () = isolation.base.tasks.stopping().cancelled() => return not_run(writer, "execd is stopping").await,
    };
    if let Err(error) = quota::check(&isolation).await {
        return not_run(writer, &error.to_string()).await;
    }
    let began = Instant::now();
    let history = &isolation.base.history;
    let number = history.begin(code.begun());
    let (guest, pipes, state) = match begin(&isolation, &session, &code).await {
        Ok(started) => started,
        Err(error) => {
            let reason = match error {
                // The session ended before the run started; clients see the same end as a moment
                // later.
                RunError::Lost => terminated(&isolation),
                error => error.to_string(),
            };
            history.end(number, NOT_STARTED, Some(reason.clone()));
            return not_run(writer, &reason).await;
        }
    };
    let mut pump = Pump {
        process: guest.clone(),
        sink: Sink::Events(writer),
        pipes,
        began,
        timeout: code.timeout,
    };
    let mut outcome = tokio::select! {
        outcome = pump.until_end() => outcome,
        never = end_when_left(&left, &guest) => match never {},
    };
    history.end(number, outcome.exit_code(), outcome.error());
    outcome.end = named(outcome.end, guest.how().await, &isolation);
    info!(id = session.id, end = ?outcome.end, "isolated run ended");
    isolation
        .base
        .telemetry
        .execution(Operation::Isolated, &outcome);
    session.adopt(state);
    pump.sink.finish(&outcome).await;
    drop(turn);
    drop(busy);
    pump.linger(&isolation.base.outputs, isolation.base.tasks.stopping())
        .await;
}

async fn begin(
    isolation: &Isolation,
    session: &Session,
    code: &Code,
) -> Result<(Guest, OutputPipes, std::fs::File), RunError> {
    let link = session.link().await.ok_or(RunError::Lost)?;
    let before = session.state();
    let after = wire::memory()?;
    let order = code.order(session, before.is_some(), true);
    let states = States {
        before: before.as_deref(),
        after: Some(&after),
    };
    let (guest, pipes) = Guest::start(&isolation.base, &link, &order, states, false).await?;
    Ok((guest, pipes, after))
}

/// Ends the run when its client disconnects; the session stays.
async fn end_when_left(left: &CancellationToken, guest: &Guest) -> Infallible {
    left.cancelled().await;
    guest.end();
    std::future::pending().await
}

/// Reason why all processes of a session ended, unless they ended on their own.
pub(super) fn terminated(isolation: &Isolation) -> String {
    let excess = isolation.sessions.excess();
    excess.unwrap_or_else(|| "session terminated".to_owned())
}

/// Converts the end of a run to this interface's error names.
fn named(end: End, how: How, isolation: &Isolation) -> End {
    match (end, how) {
        (_, How::Lost) => failed(terminated(isolation)),
        (
            End::Exited {
                timed_out: Some(limit),
                ..
            },
            _,
        ) => {
            let reason = format!("timeout after {limit:?}");
            End::Failed {
                name: TIMEOUT_ERROR,
                value: reason.clone(),
                reason,
            }
        }
        (
            end @ End::Exited {
                exit: Exit::Code(0),
                ..
            },
            _,
        ) => end,
        (End::Exited { exit, .. }, _) => End::Failed {
            name: EXIT_ERROR,
            value: exit.wire_code().to_string(),
            reason: exit.to_string(),
        },
        (end, _) => end,
    }
}
