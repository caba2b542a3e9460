//! Checks of a sandbox that run now, for its page.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use osb_app::{
    diagnosis::{CheckEnd, HealthCheck, backend::HealthBackend},
    error::ConsoleError,
    view::in_seconds,
};
use osb_protocol::{SandboxId, lifecycle::SandboxState};
use osb_service::ErrorChain;
use tokio::time::timeout;

use super::{
    super::audited::Noted, ConsoleState, daemons::Daemons, execd::ExecdError,
    for_request::ForRequest, memory::Memory, session::Admitted,
};
use crate::sandbox::{Service, explain};

/// Longest time that a check may take.
const ANSWER: Duration = Duration::from_secs(5);

/// [`HealthBackend`] for one request.
pub(super) struct Health {
    service: Service,
    daemons: Daemons,
    /// What the request has read.
    memory: Memory,
}

impl ForRequest for Health {
    fn for_request(state: &ConsoleState, admitted: &Admitted, noted: Noted) -> Self {
        Self {
            service: state.domains.service(&admitted.principal().scope),
            daemons: Daemons::for_request(state, admitted, noted),
            memory: Memory::of_request(),
        }
    }
}

impl Health {
    /// Whether the server hears of the engine's events.
    fn engine(&self) -> Found {
        match self.service.available() {
            Ok(()) => Found::good("The server is connected to the engine, and up to date."),
            Err(error) => Found::bad(explain(ErrorChain(&error).to_string(), error.cause())),
        }
    }

    async fn container(&self, id: &SandboxId) -> Found {
        let now = match timeout(ANSWER, self.service.container_now(id)).await {
            Ok(now) => now,
            Err(_) => return Found::bad("The engine does not answer."),
        };
        match now {
            Ok(None) => Found::skipped("There is no container yet."),
            Ok(Some((status, true))) => Found::good(format!("The engine reports it as {status}.")),
            Ok(Some((status, false))) => Found::bad(format!(
                "The engine reports it as {status}: no process runs."
            )),
            Err(error) => Found::bad(explain(ErrorChain(&error).to_string(), error.cause())),
        }
    }

    async fn execd(&self, id: &SandboxId, state: &SandboxState) -> Found {
        if *state != SandboxState::Running {
            return Found::skipped(format!("The sandbox does not run: it is {state}."));
        }
        let ping = async {
            let execd = self.daemons.execd(id)?;
            timeout(ANSWER, execd.ping()).await??;
            Ok::<_, ExecdError>(())
        };
        match ping.await {
            Ok(()) => Found::good("It answers /ping."),
            Err(error) => Found::bad(format!("{error}.")),
        }
    }

    async fn run(&self, id: &SandboxId) -> Result<Vec<HealthCheck>, ConsoleError> {
        let Some(record) = self.service.find(id) else {
            return Err(ConsoleError::NotFound);
        };
        let state = &record.sandbox.status.state;
        let engine = async { self.engine() };
        let (engine, container, execd) = tokio::join!(
            timed("Engine", engine),
            timed("Container", self.container(id)),
            timed("execd", self.execd(id, state)),
        );
        let engine = HealthCheck {
            // Nothing was asked.
            took_ms: None,
            ..engine
        };
        Ok(vec![engine, container, execd])
    }
}

#[async_trait]
impl HealthBackend for Health {
    async fn check(&self, id: &SandboxId) -> Result<Vec<HealthCheck>, ConsoleError> {
        let run = Box::pin(self.run(id));
        self.memory.once(format!("health/{id}"), run).await
    }
}

/// What a check found.
struct Found(CheckEnd, String);

impl Found {
    fn good(text: impl Into<String>) -> Self {
        Self(CheckEnd::Good, text.into())
    }

    fn bad(text: impl Into<String>) -> Self {
        Self(CheckEnd::Bad, text.into())
    }

    fn skipped(text: impl Into<String>) -> Self {
        Self(CheckEnd::Skipped, text.into())
    }
}

/// Runs a check and notes how long it took.
async fn timed(name: &str, check: impl Future<Output = Found>) -> HealthCheck {
    let begin = Instant::now();
    let Found(end, text) = check.await;
    let took = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    let took_ms = (end != CheckEnd::Skipped).then_some(took);
    HealthCheck {
        name: name.to_owned(),
        end,
        text,
        took_ms,
        at: in_seconds(0).ok(),
    }
}
