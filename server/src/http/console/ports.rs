//! The listening ports of sandboxes, for pages of the console.

use std::time::Duration;

use async_trait::async_trait;
use axum::http::StatusCode;
use osb_app::{error::ConsoleError, preview::backend::PortBackend};
use osb_protocol::{SandboxId, execd::port::ListeningPort};
use tokio::time::timeout;

use super::{
    execd::{ExecdError, Execds},
    memory::Memory,
};
use crate::{identity::Scope, sandbox};

/// Longest time that execd may take.
const ANSWER: Duration = Duration::from_secs(10);

/// [`PortBackend`] over execd.
pub(super) struct SandboxPorts {
    execds: Execds,
    scope: Scope,
    /// What the request has read.
    memory: Memory,
}

impl SandboxPorts {
    pub(super) fn new(execds: Execds, scope: Scope) -> Self {
        let memory = Memory::of_request();
        Self {
            execds,
            scope,
            memory,
        }
    }

    async fn read(&self, id: &SandboxId) -> Result<Vec<ListeningPort>, ExecdError> {
        let execd = self.execds.client(id, &self.scope)?;
        Ok(timeout(ANSWER, execd.ports()).await??)
    }
}

#[async_trait]
impl PortBackend for SandboxPorts {
    async fn listening(&self, id: &SandboxId) -> Result<Vec<ListeningPort>, ConsoleError> {
        let read = async {
            self.read(id).await.map_err(|error| match &error {
                ExecdError::Domain(sandbox::Error::NotFound(_)) => ConsoleError::NotFound,
                error if error.status() == Some(StatusCode::NOT_FOUND) => ConsoleError::Refused {
                    message: "The execd of this sandbox is older than this server, and does not know its ports.".to_owned(),
                },
                error => ConsoleError::Refused {
                    message: error.to_string(),
                },
            })
        };
        self.memory.once(format!("ports/{id}"), read).await
    }
}
