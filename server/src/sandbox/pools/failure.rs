//! Failed starts of sandboxes of pools.

use osb_protocol::WireTime;

/// Why a sandbox of a pool could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFailure {
    /// When.
    pub at: WireTime,
    /// The reason in words.
    pub reason: String,
}
