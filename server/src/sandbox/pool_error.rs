//! What can go wrong with a pool.

use super::too_many::TooMany;

/// Why something was not done with a pool (contract: lifecycle §10, Kubernetes K2).
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No pool by that name.
    #[error("pool {0} not found")]
    NotFound(String),
    /// The name is taken.
    #[error("pool {0} exists already")]
    Exists(String),
    /// The tenant has as many as it may have.
    #[error(transparent)]
    TooMany(TooMany),
    /// A create names a pool that does not exist.
    #[error("extensions.poolRef: pool {0} not found")]
    NoSource(String),
    /// A create got no sandbox of the pool in time.
    #[error("extensions.poolRef: pool {0} has no sandbox ready")]
    Exhausted(String),
}

impl PoolError {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Exhausted(_) => true,
            Self::NotFound(_) | Self::Exists(_) | Self::TooMany(_) | Self::NoSource(_) => false,
        }
    }

    /// Whether it is about the field `extensions.poolRef` of a create.
    #[must_use]
    pub fn is_about_source(&self) -> bool {
        matches!(self, Self::NoSource(_) | Self::Exhausted(_))
    }
}
