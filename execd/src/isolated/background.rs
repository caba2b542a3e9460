//! Background runs (contract: execd A4.5). Their output is stored outside the session's view.

use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;
use osb_protocol::execd::isolated::{IsolatedRun, IsolatedRunStarted};
use tracing::info;

use super::{
    Isolation,
    guest::{Guest, How, RunError, States},
    quota,
    request::Kind,
    run::{Code, terminated},
    session::{Busy, Session},
    store::unavailable,
};
use crate::{
    error::{ApiError, ApiResult},
    limits,
    output::{Log, Outcome, Pump, Sink},
    telemetry::Operation,
};

/// Background run.
#[derive(Debug)]
pub(super) struct Background {
    session: String,
    id: String,
    started_at: Timestamp,
    log: Arc<Log>,
    ended: Mutex<Option<Ended>>,
}

#[derive(Clone, Debug)]
struct Ended {
    at: Timestamp,
    /// Exit code, or the reason why there is none.
    code: Result<i32, String>,
}

impl Background {
    pub(super) fn is(&self, session: &str, id: &str) -> bool {
        (self.session.as_str(), self.id.as_str()) == (session, id)
    }

    fn ended(&self) -> Option<Ended> {
        self.ended
            .lock()
            .expect("no holder of this lock panics")
            .clone()
    }

    pub(super) fn is_running(&self) -> bool {
        self.ended().is_none()
    }

    /// Status in its wire format.
    pub(super) fn status(&self) -> IsolatedRun {
        let ended = self.ended();
        IsolatedRun {
            session_id: self.session.clone(),
            run_id: self.id.clone(),
            running: ended.is_none(),
            exit_code: ended.as_ref().and_then(|ended| ended.code.clone().ok()),
            error: ended.as_ref().and_then(|ended| ended.code.clone().err()),
            started_at: self.started_at,
            finished_at: ended.map(|ended| ended.at),
        }
    }

    pub(super) fn started(&self) -> IsolatedRunStarted {
        IsolatedRunStarted {
            session_id: self.session.clone(),
            run_id: self.id.clone(),
            started_at: self.started_at,
        }
    }

    /// Reads output from an offset, up to the limit of one response, and returns the next offset.
    /// An offset past the end means the end.
    pub(super) async fn read(&self, cursor: u64) -> std::io::Result<(Bytes, u64)> {
        let len = self.log.len();
        let from = cursor.min(len);
        let to = len.min(from + limits::ISOLATED_LOG_READ);
        let mut text = BytesMut::new();
        let mut at = from;
        while at < to {
            let piece = self.log.read(at, to).await?;
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            text.extend_from_slice(&piece);
        }
        Ok((text.freeze(), at))
    }
}

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
    let run = Arc::new(Background {
        session: session.id.clone(),
        id: uuid::Uuid::new_v4().to_string(),
        started_at: Timestamp::now(),
        log: Arc::new(Log::bounded(limits::ISOLATED_LOG_RUNNING)),
        ended: Mutex::default(),
    });
    let busy = session.busy();
    admit(&session, &run)?;
    let started = begin(isolation, &session, &code).await;
    let (guest, pipes) = match started {
        Ok(started) => started,
        Err(error) => {
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
        run_to_end(isolation.clone(), pump, run, busy),
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
            .filter_map(|run| Some((run.ended()?.at, run.id.clone())));
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
) -> Result<(Guest, Vec<crate::output::Pipe>), RunError> {
    let link = session.link().await.ok_or(RunError::Lost)?;
    let before = session.state();
    let mut order = code.order(session, before.is_some(), false);
    order.writable = Some(session.wanted.overlays[0].path.clone());
    let states = States {
        before: before.as_deref(),
        after: None,
    };
    Guest::start(&isolation.base, &link, &order, states, true).await
}

async fn run_to_end(isolation: Isolation, mut pump: Pump<Guest>, run: Arc<Background>, busy: Busy) {
    let outcome: Outcome = pump.until_end().await;
    isolation
        .base
        .telemetry
        .execution(Operation::Isolated, &outcome);
    run.log.cut(limits::ISOLATED_LOG);
    let code = match pump.process.how().await {
        How::Exited(exit) => Ok(exit.wire_code()),
        How::Lost => Err(terminated(&isolation)),
    };
    info!(id = run.id, session = run.session, ?code, took = ?outcome.took, "isolated background run ended");
    let at = Timestamp::now();
    *run.ended.lock().expect("no holder of this lock panics") = Some(Ended { at, code });
    drop(busy);
    pump.linger(&isolation.base.outputs, isolation.base.tasks.stopping())
        .await;
}
