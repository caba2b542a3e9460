//! Background runs (contract: execd A4.5). Their output is stored outside the session's view.

use std::sync::Arc;

use osb_protocol::execd::isolated::IsolatedRunStarted;
use tracing::info;

use super::{
    Isolation,
    guest::{Guest, How, RunError, States},
    quota,
    record::Background,
    request::Kind,
    run::{Code, terminated},
    session::{Busy, Session},
    store::unavailable,
};
use crate::{
    error::{ApiError, ApiResult},
    limits,
    output::{NOT_STARTED, Outcome, OutputPipes, Pump, Sink},
    telemetry::Operation,
};

/// Starts a background run.
///
/// # Errors
/// 400 when the working directory is not writable, 503 when the session has ended.
pub(super) async fn start(
    isolation: &Isolation,
    session: Arc<Session>,
    code: Code,
) -> ApiResult<IsolatedRunStarted> {
    let first = &session.wanted.overlays[0];
    match first.kind {
        Kind::ReadOnly => {
            let message = "background runs not supported in read-only workspace mode";
            return Err(ApiError::invalid(message));
        }
        Kind::Overlay { persist: false } => {
            let message = "background runs not supported: session has no upper directory";
            return Err(ApiError::invalid(message));
        }
        Kind::Writable | Kind::Overlay { persist: true } => {}
    }
    quota::check(isolation).await?;
    let (name, isolation) = ("start of an isolated run", isolation.clone());
    let tasks = isolation.base.tasks.clone();
    // Its end must be noted even if the client does not wait for its start.
    let started = tasks.spawn(name, async move { launch(&isolation, session, code).await });
    let started = started.await;
    started.unwrap_or_else(|_| Err(ApiError::runtime("internal error")))
}

async fn launch(
    isolation: &Isolation,
    session: Arc<Session>,
    code: Code,
) -> ApiResult<IsolatedRunStarted> {
    let run = Arc::new(Background::new(&session.id));
    let busy = session.busy();
    admit(&session, &run)?;
    let history = &isolation.base.history;
    let number = history.begin(code.begun());
    let started = begin(isolation, &session, &code).await;
    let (guest, pipes) = match started {
        Ok(started) => started,
        Err(error) => {
            history.end(number, NOT_STARTED, Some(error.to_string()));
            let mut runs = session.runs.lock().expect("no holder of this lock panics");
            runs.remove(&run.id);
            return Err(match error {
                RunError::NotWritable => {
                    ApiError::invalid(format!("background runs not supported: {error}"))
                }
                RunError::Lost => unavailable(error.to_string()),
                _ => ApiError::runtime(error.to_string()),
            });
        }
    };
    let pump = Pump {
        process: guest,
        sink: Sink::Log(Arc::clone(&run.log)),
        pipes,
        began: std::time::Instant::now(),
        timeout: None,
    };
    let started = run.started();
    isolation.base.tasks.spawn(
        "isolated background run",
        run_to_end(isolation.clone(), pump, run, number, busy),
    );
    Ok(started)
}

/// Registers a run, within the session's limits.
fn admit(session: &Session, run: &Arc<Background>) -> ApiResult<()> {
    let mut runs = session.runs.lock().expect("no holder of this lock panics");
    let active = runs.values().filter(|run| run.is_running()).count();
    if active >= limits::ISOLATED_RUNNING {
        let message = format!("{active} background runs are active already");
        return Err(ApiError::invalid(message));
    }
    while runs.len() >= limits::ISOLATED_RUNS {
        let ended = runs
            .values()
            .filter_map(|run| Some((run.ended_at()?, run.id.clone())));
        let Some((_, oldest)) = ended.min() else {
            break;
        };
        runs.remove(&oldest);
    }
    runs.insert(run.id.clone(), Arc::clone(run));
    Ok(())
}

async fn begin(
    isolation: &Isolation,
    session: &Session,
    code: &Code,
) -> Result<(Guest, OutputPipes), RunError> {
    let link = session.link().await.ok_or(RunError::Lost)?;
    let before = session.state();
    let mut order = code.order(session, before.is_some(), false);
    order.writable = Some(session.wanted.overlays[0].real.clone());
    let states = States {
        before: before.as_deref(),
        after: None,
    };
    Guest::start(&isolation.base, &link, &order, states, true).await
}

async fn run_to_end(
    isolation: Isolation,
    mut pump: Pump<Guest>,
    run: Arc<Background>,
    number: u64,
    busy: Busy,
) {
    let outcome: Outcome = pump.until_end().await;
    isolation
        .base
        .telemetry
        .execution(Operation::Isolated, &outcome);
    let history = &isolation.base.history;
    history.end(number, outcome.exit_code(), outcome.error());
    run.log.cut(limits::ISOLATED_LOG);
    let code = match pump.process.how().await {
        How::Exited(exit) => Ok(exit.wire_code()),
        How::Lost => Err(terminated(&isolation)),
    };
    info!(id = run.id, session = run.session, ?code, took = ?outcome.took, "isolated background run ended");
    run.end(code);
    drop(busy);
    pump.linger(&isolation.base.outputs, isolation.base.tasks.stopping())
        .await;
}
