//! The condition of a sandbox: the stages of its create, and in words why it is as it is. The overview
//! and the diagnostics of a sandbox show it.

mod reason;
mod stages;

use leptos::prelude::*;

pub(crate) use reason::{Reason, Since};
pub(crate) use stages::{StageBar, total};

use crate::view::SandboxDetail;

/// A card with everything that explains the state: why, the stages, and the last output of a sandbox
/// that failed.
#[component]
pub(crate) fn Condition(
    /// The sandbox.
    current: RwSignal<SandboxDetail>,
) -> impl IntoView {
    view! {
        <section class="card" aria-labelledby="state-title">
            <h2 id="state-title">"State"</h2>
            <Reason current />
            <StageBar current />
            <reason::LastOutput current />
        </section>
    }
    .into_any()
}
