//! What a sandbox was created with.

use std::collections::BTreeMap;

use osb_protocol::{SandboxId, WireTime, lifecycle::Platform};
use secrecy::SecretString;

use crate::Expiry;

/// Everything that is fixed at create. A runtime stores it with the sandbox and reports it back
/// unchanged; later changes (renewals, metadata) are kept apart from it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Identifier of the sandbox.
    pub id: SandboxId,
    /// When the request was accepted.
    pub created_at: WireTime,
    /// What the file system was made from.
    pub source: Source,
    /// Requested platform.
    pub platform: Option<Platform>,
    /// Command whose end is the sandbox's end; not empty, except where a foreign container hides it.
    pub entrypoint: Vec<String>,
    /// Resource limits as requested, for display.
    pub resources: BTreeMap<String, String>,
    /// User labels of the request.
    pub metadata: BTreeMap<String, String>,
    /// Extensions that are echoed, under their names on the API.
    pub extensions: BTreeMap<String, String>,
    /// Expiry of the request.
    pub expiry: Expiry,
    /// Seconds that a proxied request adds to the expiry.
    pub renew_extend_seconds: Option<u32>,
    /// Token of the sandbox's execd; `None` when execd does not check any.
    pub token: Option<SecretString>,
}

impl Origin {
    /// An origin with an id, a source and a time, and nothing optional.
    #[must_use]
    pub fn new(id: impl Into<SandboxId>, source: Source, created_at: WireTime) -> Self {
        Self {
            id: id.into(),
            created_at,
            source,
            platform: None,
            entrypoint: Vec::new(),
            resources: BTreeMap::new(),
            metadata: BTreeMap::new(),
            extensions: BTreeMap::new(),
            expiry: Expiry::Manual,
            renew_extend_seconds: None,
            token: None,
        }
    }
}

/// What the file system of a sandbox is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An image, by its requested reference.
    Image(String),
    /// A snapshot of an earlier sandbox (contract: lifecycle §9.5).
    Snapshot {
        /// Identifier of the snapshot.
        id: String,
        /// Image that the snapshot was stored as.
        image: String,
    },
}

impl Source {
    /// Reference of the image that the runtime starts.
    #[must_use]
    pub fn image(&self) -> &str {
        match self {
            Self::Image(image) | Self::Snapshot { image, .. } => image,
        }
    }

    /// Identifier of the snapshot, if it is one.
    #[must_use]
    pub fn snapshot_id(&self) -> Option<&str> {
        match self {
            Self::Image(_) => None,
            Self::Snapshot { id, .. } => Some(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_snapshot_has_a_snapshot_id() {
        let image = Source::Image("debian:12".into());
        assert_eq!((image.image(), image.snapshot_id()), ("debian:12", None));
        let snapshot = Source::Snapshot {
            id: "s".into(),
            image: "opensandbox-snapshots:s".into(),
        };
        assert_eq!(snapshot.image(), "opensandbox-snapshots:s");
        assert_eq!(snapshot.snapshot_id(), Some("s"));
    }
}
