//! The state of a pool as icon, word and colour.

use leptos::prelude::*;

use crate::{ui::Badge, view::PoolState};

/// State of a pool.
#[component]
pub(super) fn PoolBadge(
    /// The state.
    #[prop(into)]
    state: Signal<PoolState>,
) -> impl IntoView {
    let look = Signal::derive(move || look(state.get()));
    let word = Signal::derive(move || state.get().word());
    view! { <Badge look word /> }.into_any()
}

/// Colour family in style/tokens.css, and icon.
fn look(state: PoolState) -> (&'static str, &'static str) {
    match state {
        PoolState::Failing => ("bad", "circle-x"),
        PoolState::Filling => ("busy", "circle-dashed"),
        PoolState::Ready => ("good", "circle-check"),
        PoolState::UsedUp => ("busy", "circle-stop"),
        PoolState::Empty => ("quiet", "circle-pause"),
    }
}
