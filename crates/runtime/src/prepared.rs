//! What a back end makes before it is needed.

use std::fmt;

/// The beginning of a sandbox that a back end made in advance, held by the one create that may use it
/// (see [`Runtime::prepare`](crate::Runtime::prepare)).
///
/// The sandbox to be has its id already. If this is dropped without [`Self::commit`], another create
/// may get it, with the same id.
pub trait Prepared: fmt::Debug + Send + Sync {
    /// Ties the id to this create: something beyond its request knows it by now, such as the list of
    /// sandboxes or the store.
    fn commit(&self);
}

/// Sidecars that run before a create needs them, and what creates got of them since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmSidecars {
    /// How many are to wait.
    pub wanted: usize,
    /// How many wait.
    pub waiting: usize,
    /// Creates whose sandbox has one.
    pub hits: u64,
    /// Creates that need a sidecar for which none waited, or none that fits.
    pub misses: u64,
    /// Creates that got one that did not work any more, and started another.
    pub failures: u64,
}
