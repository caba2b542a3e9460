//! The connection to the engine.

use std::{fmt, sync::OnceLock};

use bollard::{Docker, errors::Error};

use super::error;
use crate::RuntimeError;

type Connect = Box<dyn Fn() -> Result<Docker, Error> + Send + Sync>;

/// Connects on first use: the client library refuses to be made while the engine's socket does not
/// exist, but an engine that is not up yet is no reason for a server not to start.
pub(super) struct Engine {
    connect: Connect,
    docker: OnceLock<Docker>,
}

impl Engine {
    pub(super) fn new(connect: Connect) -> Self {
        Self {
            connect,
            docker: OnceLock::new(),
        }
    }

    /// The client of the engine.
    pub(super) fn client(&self) -> Result<&Docker, RuntimeError> {
        if let Some(docker) = self.docker.get() {
            return Ok(docker);
        }
        let docker = (self.connect)().map_err(|error| error::other("connect", &error))?;
        Ok(self.docker.get_or_init(|| docker))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("connected", &self.docker.get().is_some())
            .finish()
    }
}
