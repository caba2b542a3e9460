//! Resources that a caller holds during an exchange.

use std::{any::Any, sync::Arc};

/// Something that is held for as long as an exchange lasts: put into the extensions of a request, it
/// is dropped with the body of the response or, after an upgrade, with the tunnel. Clones hold the
/// same thing.
#[derive(Clone)]
pub struct Lease(#[expect(dead_code, reason = "held, not read")] Arc<dyn Any + Send + Sync>);

impl Lease {
    /// Holds this.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Arc::new(held))
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lease")
    }
}
