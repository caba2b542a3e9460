//! execd's port of the host, which one sandbox at a time has with the host's network.

use std::sync::{Mutex, MutexGuard, PoisonError};

use osb_protocol::SandboxId;

use super::{DockerRuntime, ports::Reserved};
use crate::{EXECD_PORT, RuntimeError};

/// execd's port of the host, and the main container that has it on the host's network.
#[derive(Debug, Default)]
pub(super) struct HostPort(Mutex<Option<(String, Vec<Reserved>)>>);

impl HostPort {
    fn holder(&self) -> Option<String> {
        let holder = self.locked();
        holder.as_ref().map(|(container, _)| container.clone())
    }

    /// Keeps the port reserved for a container.
    pub(super) fn hold(&self, container: &str, reserved: Vec<Reserved>) {
        *self.locked() = Some((container.to_owned(), reserved));
    }

    /// Frees the port, unless another container has it by now.
    fn release(&self, container: &str) {
        let mut holder = self.locked();
        if holder.as_ref().is_some_and(|(has, _)| has == container) {
            *holder = None;
        }
    }

    fn locked(&self) -> MutexGuard<'_, Option<(String, Vec<Reserved>)>> {
        // The value is replaced as a whole, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DockerRuntime {
    /// Claims execd's port of the host. Without it execd could not listen, and another program would
    /// answer in its place.
    pub(super) async fn claim_host_port(&self, id: &SandboxId) -> Result<Reserved, RuntimeError> {
        if let Some(holder) = self.host_port.holder() {
            // Its execd may not listen yet, so the port may look free.
            let is_running = match self.inspect(&holder).await {
                Ok(inspected) => inspected.state.and_then(|state| state.running) == Some(true),
                Err(RuntimeError::NotFound(_)) => false,
                Err(error) => return Err(error),
            };
            if !is_running {
                self.host_port.release(&holder);
            }
        }
        let claimed = self.ports.claim(EXECD_PORT);
        claimed.ok_or_else(|| RuntimeError::Start {
            id: id.clone(),
            reason: format!(
                "port {EXECD_PORT} of the host is taken: with docker.network_mode = \"host\" only \
                 one sandbox can run"
            )
            .into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use serde_json::json;

    use crate::{
        Progress, Runtime, Stage,
        docker::{fake_engine::FakeEngine, labels},
    };

    #[derive(Debug)]
    struct Silent;

    impl Progress for Silent {
        fn reached(&self, _stage: Stage) {}
        fn note(&self, _text: &str) {}
    }

    #[tokio::test]
    async fn on_the_hosts_network_a_second_sandbox_is_refused_while_the_first_runs() {
        let is_running = Arc::new(AtomicBool::new(true));
        let shared = Arc::clone(&is_running);
        let engine = FakeEngine::start(move |request| {
            if request.starts_with("GET /containers/c/json") {
                let running = shared.load(Ordering::Relaxed);
                let container = json!({
                    "Created": "2031-05-01T10:00:00Z",
                    "Config": {"Labels": {labels::ID: "a", labels::SERVER: "us"}},
                    "State": {"Running": running, "StartedAt": "2031-05-01T10:00:01Z"},
                });
                return (200, container.to_string());
            }
            FakeEngine::with_volumes(request)
        })
        .await;
        let runtime = engine.runtime();
        runtime
            .create(labels::tests::spec(), &Silent)
            .await
            .unwrap();
        // Its execd does not listen yet: the port of the host is free.
        let second = runtime.create(labels::tests::spec(), &Silent).await;
        let error = second.unwrap_err().to_string();
        assert!(error.contains("port 44772 of the host is taken"), "{error}");
        is_running.store(false, Ordering::Relaxed);
        runtime
            .create(labels::tests::spec(), &Silent)
            .await
            .unwrap();
    }
}
