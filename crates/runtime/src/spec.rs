//! Create requests, as the domain passes them to a back end.

use std::{collections::BTreeMap, fmt, sync::Arc};

use osb_protocol::{
    SandboxId, WireTime,
    lifecycle::{ImageAuth, Volume},
    resources::ResourceLimits,
};

use crate::{Origin, Prepared};

/// Variables that the server sets in every sandbox. A request's own values have no effect: another
/// token would lock the server out.
pub const SERVER_VARIABLES: [&str; 3] =
    ["EXECD_ACCESS_TOKEN", "OPENSANDBOX_ID", "EXECD_RUNTIME_INIT"];

/// A validated create request.
#[derive(Clone)]
pub struct CreateSpec {
    /// Attributes that the runtime stores with the sandbox and reports back.
    pub origin: Origin,
    /// Registry credentials for the pull, used once.
    pub auth: Option<ImageAuth>,
    /// Environment of the request. `None` removes a configured default.
    pub env: BTreeMap<String, Option<String>>,
    /// Parsed limits. The origin has them as requested.
    pub limits: ResourceLimits,
    /// Lifecycle hooks, as execd reads them from its environment.
    pub lifecycle: Option<String>,
    /// Whether execd may isolate sessions, which weakens the isolation of the sandbox itself
    /// (contract: execd A9.1). It only affects the container's settings and is not reported back.
    pub isolation: bool,
    /// Whether execd waits for a claim before it starts an entry point ([`Pools`](crate::Pools)).
    pub waits: bool,
    /// Network policy. Its token is in the origin.
    pub network_policy: Option<NetworkPolicy>,
    /// What the back end has made of this sandbox in advance.
    pub prepared: Option<Arc<dyn Prepared>>,
    /// Volumes of the request, with credentials. The origin has them without.
    pub volumes: Vec<Volume>,
}

/// Network policy of a sandbox, which its egress sidecar enforces (contract: lifecycle §4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkPolicy {
    /// The policy as JSON, as the sidecar reads it.
    pub rules: String,
    /// Variables of the request for the sidecar (contract: lifecycle §A9).
    pub variables: BTreeMap<String, String>,
}

impl CreateSpec {
    /// Creates a spec without optional settings.
    #[must_use]
    pub fn new(origin: Origin) -> Self {
        Self {
            origin,
            auth: None,
            env: BTreeMap::new(),
            limits: ResourceLimits::default(),
            lifecycle: None,
            isolation: false,
            waits: false,
            network_policy: None,
            prepared: None,
            volumes: Vec::new(),
        }
    }

    /// Identifier of the sandbox.
    #[must_use]
    pub fn id(&self) -> &SandboxId {
        &self.origin.id
    }
}

/// Omits the hooks and the values of the environment, which may contain secrets.
impl fmt::Debug for CreateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateSpec")
            .field("origin", &self.origin)
            .field("env", &self.env.keys())
            .field("limits", &self.limits)
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}

/// A change of attributes that a sandbox was created with. `None` keeps a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amendment {
    /// Renewed expiry.
    pub expires_at: Option<WireTime>,
    /// Patched metadata, which replaces all of the origin's.
    pub metadata: Option<BTreeMap<String, String>>,
}

impl Amendment {
    /// Applies a later change on top.
    pub fn merge(&mut self, later: &Self) {
        if later.expires_at.is_some() {
            self.expires_at = later.expires_at;
        }
        if later.metadata.is_some() {
            self.metadata.clone_from(&later.metadata);
        }
    }
}

/// Component that stores an [`Amendment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptBy {
    /// The runtime, which reports it in [`Status::amendment`](crate::Status::amendment).
    Runtime,
    /// The caller: the runtime does not store it.
    Caller,
}

/// Progress of a create, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The request is valid.
    Accepted,
    /// The image is on the host.
    Image,
    /// The container exists.
    Created,
    /// The container runs and has an address.
    Network,
    /// execd answers.
    Execd,
    /// The sandbox is ready for clients.
    Ready,
}

impl Stage {
    /// All stages in order.
    pub const ALL: [Self; 6] = [
        Self::Accepted,
        Self::Image,
        Self::Created,
        Self::Network,
        Self::Execd,
        Self::Ready,
    ];

    /// Name in lower case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Image => "image",
            Self::Created => "created",
            Self::Network => "network",
            Self::Execd => "execd",
            Self::Ready => "ready",
        }
    }
}

/// Receiver of a create's progress.
pub trait Progress: Send + Sync {
    /// Reports that a stage was reached.
    fn reached(&self, stage: Stage);
    /// Reports details within the current stage, such as "pulling layer 3 of 7".
    fn note(&self, _text: &str) {}
}

impl<F: Fn(Stage) + Send + Sync> Progress for F {
    fn reached(&self, stage: Stage) {
        self(stage);
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;
    use crate::Source;

    #[test]
    fn debug_output_omits_values_of_the_environment() {
        let at = WireTime::from_unix_us(0).unwrap();
        let mut spec = CreateSpec::new(Origin::new("a", Source::Image("i".into()), at));
        spec.env.insert("KEY".into(), Some("s3cret".into()));
        let shown = format!("{spec:?}");
        assert!(
            shown.contains("KEY") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
}
