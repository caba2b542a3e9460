//! Attributes of a sandbox that are fixed at its creation.

use std::{collections::BTreeMap, sync::Arc};

use osb_protocol::{
    SandboxId, WireTime,
    lifecycle::{Platform, Volume},
};
use rand::RngExt;
use secrecy::SecretString;

/// Returns an id that no other sandbox has.
#[must_use]
pub fn new_id() -> SandboxId {
    SandboxId::new(uuid::Uuid::new_v4().to_string())
}

/// Returns a token of 256 random bits, as text that fits into a header.
#[must_use]
pub fn new_token() -> SecretString {
    let bytes: [u8; 32] = rand::rng().random();
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    SecretString::from(digits.collect::<String>())
}

/// Everything that is fixed at creation. A runtime stores it with the sandbox and reports it back
/// unchanged; later changes (renewals, metadata) are stored separately.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Identifier of the sandbox.
    pub id: SandboxId,
    /// When the request was accepted.
    pub created_at: WireTime,
    /// What the file system is created from.
    pub source: Source,
    /// Requested platform.
    pub platform: Option<Platform>,
    /// Command whose exit ends the sandbox. Empty only for containers of other programs whose command
    /// cannot be read.
    pub entrypoint: Vec<String>,
    /// Resource limits as requested, for display.
    pub resources: BTreeMap<String, String>,
    /// Metadata of the request.
    pub metadata: BTreeMap<String, String>,
    /// Extensions that responses repeat, under their API names.
    pub extensions: BTreeMap<String, String>,
    /// Expiry of the request.
    pub expiry: Expiry,
    /// Seconds by which a proxied request extends the expiry.
    pub renew_extend_seconds: Option<u32>,
    /// Access token of the sandbox's execd; `None` when execd requires none.
    pub token: Option<SecretString>,
    /// Token that the server's proxy requires for every port; `None` when it requires none. Ports of
    /// such a sandbox are not published.
    pub secure_access: Option<SecretString>,
    /// Token of the sidecar that enforces the network policy; `None` without a policy.
    pub egress_token: Option<SecretString>,
    /// Whether lifecycle hooks were given.
    pub hooks: bool,
    /// Volumes of the request, without credentials.
    pub volumes: Vec<Volume>,
    /// Name of the tenant that it belongs to; `None` for one of the operators of the server.
    pub tenant: Option<Arc<str>>,
    /// Who created it, in the server's own notation; `None` where that does not matter.
    pub owner: Option<Arc<str>>,
    /// Name of the pool that it was started for, whether it waits there or was claimed.
    pub pool: Option<Arc<str>>,
}

/// When a sandbox is to be removed, as far as its back end knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// At this time.
    At(WireTime),
    /// When a client deletes it.
    Manual,
    /// Missing or unreadable. The sandbox is kept and the operator is warned.
    Unknown,
}

impl Origin {
    /// Creates an origin without optional attributes.
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
            secure_access: None,
            egress_token: None,
            hooks: false,
            volumes: Vec::new(),
            tenant: None,
            owner: None,
            pool: None,
        }
    }
}

/// What the file system of a sandbox is created from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An image, by the requested reference.
    Image(String),
    /// A snapshot of an earlier sandbox, by its id (contract: lifecycle §9.5). How it is stored is up
    /// to the runtime.
    Snapshot(String),
    /// A waiting sandbox of a pool, by the pool's name (contract: lifecycle §10). The domain replaces it by
    /// the source of the one that it takes.
    Pool(String),
    /// An image that was made ready for sandboxes, by its template's id (contract: lifecycle §A3). How it
    /// is stored is up to the runtime.
    Template(String),
}

impl Source {
    /// Requested reference of an image.
    #[must_use]
    pub fn image(&self) -> Option<&str> {
        match self {
            Self::Image(image) => Some(image),
            Self::Snapshot(_) | Self::Pool(_) | Self::Template(_) => None,
        }
    }

    /// The source whose text this is. References of images have no blanks.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        match text.split_once(' ') {
            Some(("snapshot", id)) => Self::Snapshot(id.to_owned()),
            Some(("pool", name)) => Self::Pool(name.to_owned()),
            Some(("template", id)) => Self::Template(id.to_owned()),
            _ => Self::Image(text.to_owned()),
        }
    }

    /// Identifier of a snapshot.
    #[must_use]
    pub fn snapshot_id(&self) -> Option<&str> {
        match self {
            Self::Snapshot(id) => Some(id),
            Self::Image(_) | Self::Pool(_) | Self::Template(_) => None,
        }
    }

    /// Whether the back end keeps it itself, so that there is nowhere else to get it from.
    #[must_use]
    pub fn is_kept_here(&self) -> bool {
        matches!(self, Self::Snapshot(_) | Self::Template(_))
    }

    /// Identifier of a template.
    #[must_use]
    pub fn template_id(&self) -> Option<&str> {
        match self {
            Self::Template(id) => Some(id),
            Self::Image(_) | Self::Pool(_) | Self::Snapshot(_) => None,
        }
    }
}

/// Text for logs and history.
impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Image(image) => f.write_str(image),
            Self::Snapshot(id) => write!(f, "snapshot {id}"),
            Self::Pool(name) => write!(f, "pool {name}"),
            Self::Template(id) => write!(f, "template {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_snapshot_has_a_snapshot_id() {
        let image = Source::Image("debian:12".into());
        assert_eq!(
            (image.image(), image.snapshot_id()),
            (Some("debian:12"), None)
        );
        let snapshot = Source::Snapshot("s".into());
        assert_eq!(
            (snapshot.image(), snapshot.snapshot_id()),
            (None, Some("s"))
        );
        let pool = Source::Pool("p".into());
        assert_eq!((pool.image(), pool.snapshot_id()), (None, None));
        assert_eq!(pool.to_string(), "pool p");
        let template = Source::Template("t".into());
        assert_eq!((template.image(), template.snapshot_id()), (None, None));
        assert_eq!(template.template_id(), Some("t"));
        for source in [image, snapshot, pool, template] {
            assert_eq!(Source::of_text(&source.to_string()), source);
        }
    }
}
