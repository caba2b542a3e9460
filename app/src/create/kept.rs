//! The variables that a copy takes over. Their values stay on the server.

use leptos::{ev, html, prelude::*};

use super::state::State;
use crate::{form::raw_text, ui::Icon};

/// Names of the variables that the server takes over from another sandbox; each can be left out.
#[component]
pub(super) fn KeptVariables(
    state: State,
    /// Whether the variables of the other sandbox are known.
    are_known: bool,
) -> impl IntoView {
    let from = state.form.read_untracked().from.clone();
    if from.is_empty() {
        return ().into_any();
    }
    let initial = state.form.read_untracked().kept.clone();
    let area = NodeRef::<html::Textarea>::new();
    let names = Memo::new(move |_| {
        let form = state.form.read();
        form.kept.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let chip = move |name: String| {
        let label = format!("Delete {name}");
        let left_out = name.clone();
        view! {
            <li>
                <code>{name}</code>
                <button
                    type="button"
                    class="icon-button"
                    aria-label=label.clone()
                    title=label
                    on:click=move |_| state.leave_out(&left_out)
                >
                    <Icon name="x" />
                </button>
            </li>
        }
    };
    let note = move || match (are_known, names.read().is_empty()) {
        (false, _) => "The variables of the original are not known, so none is copied.",
        (true, true) => "No variable of the original is copied.",
        (true, false) => {
            "Copied from the original by the server, which does not show their values:"
        }
    };
    view! {
        <div class="kept">
            <input type="hidden" name="from" value=from />
            <p id="kept-help" class="help">{note}</p>
            <ul class="needs-script">
                <For each=move || names.get() key=Clone::clone children=chip />
            </ul>
            <textarea
                name="kept"
                class="needs-no-script"
                node_ref=area
                rows="3"
                spellcheck="false"
                aria-label="Variables to copy, one name per line"
                aria-describedby="kept-help"
                on:input=move |event: ev::Event| state.keep(event_target_value(&event))
            >
                {raw_text(&initial)}
            </textarea>
        </div>
    }
    .into_any()
}
