//! What a copy of a sandbox needs that only its container has.

use std::collections::BTreeMap;

use async_trait::async_trait;
use osb_protocol::SandboxId;
use secrecy::SecretString;

use crate::RuntimeError;

/// Reads what sandboxes were created with, for copies of them.
///
/// The values are the user's secrets: they may become part of another create, and must not be sent to a
/// client or logged.
#[async_trait]
pub trait Copying: Send + Sync {
    /// Reads the environment that the request of a sandbox set. Fails with
    /// [`RuntimeError::NotFound`] if the sandbox has no container.
    async fn read_environment(&self, id: &SandboxId) -> Result<RequestEnvironment, RuntimeError>;
}

/// The environment of a create request, as far as it shows: a variable that equals that of the image or
/// the configured default counts as theirs.
#[derive(Clone, Debug, Default)]
pub struct RequestEnvironment {
    /// Variables. `None` removes a configured default.
    pub variables: BTreeMap<String, Option<SecretString>>,
    /// Lifecycle hooks, as execd reads them.
    pub hooks: Option<SecretString>,
    /// The network policy as JSON, as the sandbox was created with it; `None` without one, and if the
    /// container that had it is gone. It has no secrets.
    pub network_policy: Option<String>,
}
