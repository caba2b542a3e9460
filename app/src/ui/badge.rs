//! A state as icon, word and colour, never as colour alone.

use leptos::prelude::*;
use osb_protocol::lifecycle::SandboxState;

use super::Icon;
use crate::view::Outcome;

/// A state as a colour family in style/tokens.css with an icon, and a word.
#[component]
pub(crate) fn Badge(
    /// Colour family and icon.
    #[prop(into)]
    look: Signal<(&'static str, &'static str)>,
    /// The word.
    #[prop(into)]
    word: Signal<&'static str>,
) -> impl IntoView {
    view! {
        <span class="badge" data-tone=move || look.get().0>
            <Icon name=Signal::derive(move || look.get().1) />
            <span>{move || word.get()}</span>
        </span>
    }
    .into_any()
}

/// State of a sandbox; during its creation with the stage.
#[component]
pub fn StateBadge(
    /// The state.
    #[prop(into)]
    state: Signal<SandboxState>,
    /// The stage of its creation.
    #[prop(optional, into)]
    stage: Signal<Option<String>>,
) -> impl IntoView {
    view! {
        <span class="badge" data-tone=move || tone(&state.get())>
            <Icon name=Signal::derive(move || icon(&state.get())) />
            <span>{move || state.get().to_string()}</span>
            <span class="badge-stage">{move || stage.get().map(|stage| format!("· {stage}"))}</span>
        </span>
    }
}

/// How a sandbox ended.
#[component]
pub fn OutcomeBadge(
    /// What ended it.
    outcome: Outcome,
) -> impl IntoView {
    let (tone, icon) = match outcome {
        Outcome::Deleted => ("quiet", "trash-2"),
        Outcome::Expired => ("quiet", "clock"),
        Outcome::Failed => ("bad", "circle-x"),
        Outcome::Abandoned => ("busy", "plug"),
        Outcome::Vanished => ("bad", "circle-help"),
    };
    view! {
        <span class="badge" data-tone=tone>
            <Icon name=icon />
            <span>{outcome.word()}</span>
        </span>
    }
    .into_any()
}

/// Colour family in style/tokens.css.
fn tone(state: &SandboxState) -> &'static str {
    match state {
        SandboxState::Running => "good",
        SandboxState::Failed => "bad",
        SandboxState::Paused | SandboxState::Pausing => "calm",
        SandboxState::Pending | SandboxState::Resuming | SandboxState::Stopping => "busy",
        SandboxState::Terminated | SandboxState::Unknown | SandboxState::Other(_) => "quiet",
    }
}

fn icon(state: &SandboxState) -> &'static str {
    match state {
        SandboxState::Running => "circle-check",
        SandboxState::Failed => "circle-x",
        SandboxState::Paused | SandboxState::Pausing => "circle-pause",
        SandboxState::Pending | SandboxState::Resuming => "circle-dashed",
        SandboxState::Stopping | SandboxState::Terminated => "circle-stop",
        SandboxState::Unknown | SandboxState::Other(_) => "circle-help",
    }
}
