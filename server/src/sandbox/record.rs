//! What clients see of a sandbox.
//!
//! A [`Record`] is derived from [`Facts`] and never changed: each change makes a new one, serialised
//! once, however often it is read.

use bytes::Bytes;
use osb_protocol::lifecycle::{Allocation, ImageRef, Sandbox};
use osb_runtime::{Reasons, Source};

use super::{Facts, state};

/// One sandbox in its current state.
#[derive(Clone, Debug)]
pub struct Record {
    /// What clients see.
    pub sandbox: Sandbox,
    /// The same as JSON.
    pub json: Bytes,
    /// What it is derived from.
    pub facts: Facts,
    /// Grows with every change of any sandbox.
    pub seq: u64,
}

impl Record {
    /// Derives what clients see.
    #[must_use]
    pub fn derive(facts: Facts, seq: u64, reasons: &Reasons) -> Self {
        let origin = &facts.origin;
        let image = match &origin.source {
            Source::Image(uri) => Some(ImageRef { uri: uri.clone() }),
            // As runtimes do that know images by their template (contract: lifecycle §A6).
            Source::Template(id) => Some(ImageRef { uri: id.clone() }),
            Source::Snapshot(_) | Source::Pool(_) => None,
        };
        let sandbox = Sandbox {
            id: origin.id.clone(),
            image,
            snapshot_id: origin.source.snapshot_id().map(str::to_owned),
            platform: origin.platform.clone(),
            status: state::status(&facts, reasons),
            metadata: facts.metadata().clone(),
            extensions: origin.extensions.clone(),
            allocation: origin.pool.as_deref().map(Allocation::of_pool),
            entrypoint: origin.entrypoint.clone(),
            expires_at: facts.expires_at(),
            created_at: origin.created_at,
        };
        let json = serde_json::to_vec(&sandbox).expect("maps have string keys, so this serialises");
        Self {
            sandbox,
            json: json.into(),
            facts,
            seq,
        }
    }
}
