//! What the domain asks a back end to make.

use std::collections::BTreeMap;

use osb_protocol::{
    SandboxId, WireTime,
    lifecycle::{ImageAuth, Platform},
    resources::ResourceLimits,
};
use secrecy::SecretString;

/// A validated sandbox to be.
#[derive(Clone, Debug)]
pub struct CreateSpec {
    /// Its name.
    pub id: SandboxId,
    /// Image reference.
    pub image: String,
    /// Credentials for the pull, used once.
    pub auth: Option<ImageAuth>,
    /// Wanted platform.
    pub platform: Option<Platform>,
    /// Command it lives as long as; not empty.
    pub entrypoint: Vec<String>,
    /// Environment of the request; `None` removes a configured default.
    pub env: BTreeMap<String, Option<String>>,
    /// Parsed limits.
    pub limits: ResourceLimits,
    /// The same as requested, to be shown.
    pub resources: BTreeMap<String, String>,
    /// User labels.
    pub metadata: BTreeMap<String, String>,
    /// Extensions to keep, without their prefix.
    pub extensions: BTreeMap<String, String>,
    /// Whether its execd shall be able to isolate sessions, which weakens what holds the sandbox
    /// itself (contract: execd A9.1). Not kept: it shows in nothing but the container's settings.
    pub isolation: bool,
    /// Seconds that a proxied request adds to the expiry.
    pub renew_extend_seconds: Option<u32>,
    /// When it shall be removed; `None` means a client deletes it.
    pub expires_at: Option<WireTime>,
    /// When it was accepted.
    pub created_at: WireTime,
    /// Token for its execd; `None` turns the check off.
    pub token: Option<SecretString>,
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
