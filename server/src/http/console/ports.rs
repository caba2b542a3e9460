//! The listening ports of sandboxes, for pages of the console.

use std::time::Duration;

use async_trait::async_trait;
use axum::http::StatusCode;
use osb_app::{error::ConsoleError, preview::backend::PortBackend};
use osb_protocol::{SandboxId, execd::port::ListeningPort};
use tokio::time::timeout;

use super::{
    super::audited::Noted,
    ConsoleState,
    daemons::{DaemonFailure, Daemons},
    execd::ExecdError,
    for_request::ForRequest,
    memory::Memory,
    session::Admitted,
};

/// Longest time that execd may take.
const ANSWER: Duration = Duration::from_secs(10);

/// What an execd without the list of ports means.
const OLD_EXECD: &str =
    "The execd of this sandbox is older than this server, and does not know its ports.";

/// [`PortBackend`] over execd.
pub(super) struct SandboxPorts {
    daemons: Daemons,
    /// What the request has read.
    memory: Memory,
}

impl ForRequest for SandboxPorts {
    fn for_request(state: &ConsoleState, admitted: &Admitted, noted: Noted) -> Self {
        Self {
            daemons: Daemons::for_request(state, admitted, noted),
            memory: Memory::of_request(),
        }
    }
}

impl SandboxPorts {
    async fn read(&self, id: &SandboxId) -> Result<Vec<ListeningPort>, DaemonFailure> {
        let execd = self.daemons.execd(id)?;
        Ok(timeout(ANSWER, execd.ports()).await??)
    }
}

#[async_trait]
impl PortBackend for SandboxPorts {
    async fn listening(&self, id: &SandboxId) -> Result<Vec<ListeningPort>, ConsoleError> {
        let read = async {
            let ports = self.read(id).await;
            ports.map_err(|failure| failure.shown(explained))
        };
        self.memory.once(format!("ports/{id}"), read).await
    }
}

/// What execd refuses, or why it cannot be asked, in words.
fn explained(error: ExecdError) -> String {
    match error.status() {
        Some(StatusCode::NOT_FOUND) => OLD_EXECD.to_owned(),
        _ => error.to_string(),
    }
}
