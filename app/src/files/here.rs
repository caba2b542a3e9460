//! Which sandbox the parts of the tab work on.

use leptos::prelude::*;
use osb_protocol::SandboxId;

/// What the parts of the tab work on.
#[derive(Clone)]
pub(super) struct Here {
    /// The sandbox.
    pub(super) id: SandboxId,
    /// Reads again what is shown.
    pub(super) again: Callback<()>,
}
