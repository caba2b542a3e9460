//! Which sandbox the parts of the tab work on.

use leptos::prelude::*;
use osb_protocol::SandboxId;

use super::Asked;

/// What the parts of the tab work on.
#[derive(Clone)]
pub(super) struct Here {
    /// The sandbox.
    pub(super) id: SandboxId,
    /// What is in the fields of the search.
    pub(super) typed: RwSignal<Asked>,
    /// Reads again what is shown.
    pub(super) again: Callback<()>,
    /// Whether a file was saved that is to be shown next.
    pub(super) saved: StoredValue<bool>,
}
