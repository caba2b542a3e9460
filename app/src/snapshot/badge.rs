//! The state of a snapshot as icon, word and colour.

use leptos::prelude::*;
use osb_protocol::lifecycle::SnapshotState;

use crate::ui::Badge;

/// State of a snapshot.
#[component]
pub(crate) fn SnapshotBadge(
    /// The state.
    #[prop(into)]
    state: Signal<SnapshotState>,
) -> impl IntoView {
    let look = Signal::derive(move || look(state.get()));
    let word = Signal::derive(move || state.get().as_str());
    view! { <Badge look word /> }.into_any()
}

/// Colour family in style/tokens.css, and icon.
fn look(state: SnapshotState) -> (&'static str, &'static str) {
    match state {
        SnapshotState::Creating => ("busy", "circle-dashed"),
        SnapshotState::Ready => ("good", "circle-check"),
        SnapshotState::Failed => ("bad", "circle-x"),
        SnapshotState::Deleting => ("busy", "circle-stop"),
    }
}
