//! The tools beside the state of a terminal.

use leptos::prelude::*;

use super::Settings;
use crate::ui::Icon;

/// Buttons for the terminal, which need script.
#[component]
pub(super) fn Toolbar(settings: Settings) -> impl IntoView {
    view! {
        <div class="terminal-tools needs-script" role="group" aria-label="Terminal tools">
            <Toggle label="Screen reader mode" icon="ear" on=settings.screen_reader />
        </div>
    }
    .into_any()
}

/// A button that is pressed or not.
#[component]
fn Toggle(label: &'static str, icon: &'static str, on: RwSignal<bool>) -> impl IntoView {
    view! {
        <button
            type="button"
            class="icon-button"
            aria-label=label
            title=label
            aria-pressed=move || on.get().to_string()
            on:click=move |_| on.update(|on| *on = !*on)
        >
            <Icon name=icon />
        </button>
    }
    .into_any()
}
