//! What the domain asks a back end to make.

use std::{collections::BTreeMap, fmt};

use osb_protocol::{SandboxId, WireTime, lifecycle::ImageAuth, resources::ResourceLimits};

use crate::Origin;

/// A validated create request.
#[derive(Clone)]
pub struct CreateSpec {
    /// What the runtime stores with the sandbox and reports back.
    pub origin: Origin,
    /// Credentials for the pull, used once.
    pub auth: Option<ImageAuth>,
    /// Environment of the request; `None` removes a configured default.
    pub env: BTreeMap<String, Option<String>>,
    /// Parsed limits; the origin has them as requested.
    pub limits: ResourceLimits,
    /// Whether execd may isolate sessions, which weakens the isolation of the sandbox itself
    /// (contract: execd A9.1). Not part of the origin: it shows only in the container's settings.
    pub isolation: bool,
}

impl CreateSpec {
    /// A spec with nothing optional.
    #[must_use]
    pub fn new(origin: Origin) -> Self {
        Self {
            origin,
            auth: None,
            env: BTreeMap::new(),
            limits: ResourceLimits::default(),
            isolation: false,
        }
    }

    /// Identifier of the sandbox.
    #[must_use]
    pub fn id(&self) -> &SandboxId {
        &self.origin.id
    }
}

/// Without the values of the environment, which may be secrets.
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

/// A change of what a sandbox was created with. `None` leaves a value as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amendment {
    /// Renewed expiry.
    pub expires_at: Option<WireTime>,
    /// Patched metadata; replaces the origin's wholly.
    pub metadata: Option<BTreeMap<String, String>>,
}

impl Amendment {
    /// Takes over what a later change sets.
    pub fn merge(&mut self, later: &Self) {
        if later.expires_at.is_some() {
            self.expires_at = later.expires_at;
        }
        if later.metadata.is_some() {
            self.metadata.clone_from(&later.metadata);
        }
    }
}

/// Who stores an [`Amendment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptBy {
    /// The runtime did: it reports it with [`Status::amendment`](crate::Status::amendment).
    Runtime,
    /// The runtime cannot: the caller must.
    Caller,
}

/// How far a create is. The order is the order of the stage bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The request passed every rule.
    Accepted,
    /// The image is on the host.
    Image,
    /// The container exists.
    Created,
    /// The container runs and has an address.
    Network,
    /// execd answers.
    Execd,
    /// Clients may use it.
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

    /// Lower-case name.
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

/// Hears which stage a create has reached.
pub trait Progress: Send + Sync {
    /// The stage was reached just now.
    fn reached(&self, stage: Stage);
    /// What is going on within the current stage, such as "pulling layer 3 of 7".
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
    fn values_of_the_environment_are_not_shown() {
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
