//! A button that asks before it acts.

use leptos::{ev, prelude::*};

/// A button with a question behind it. Without script the form goes to `action`.
#[component]
pub(super) fn Confirm(
    /// Text of the button that opens the question.
    opener: &'static str,
    /// Its label for screen readers, which also says what it is about.
    label: String,
    /// The question.
    question: String,
    /// Text of the button that acts.
    button: &'static str,
    /// Where the form goes without script.
    action: String,
    /// Whether it acts now.
    busy: RwSignal<bool>,
    /// Acts.
    #[prop(into)]
    act: Callback<()>,
) -> impl IntoView {
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        act.run(());
    };
    view! {
        <details class="confirm" name="confirm">
            <summary class="button" aria-label=label>
                {opener}
            </summary>
            <form method="post" action=action on:submit=submit class="card confirm-card">
                <p>{question}</p>
                <button type="submit" class="button danger" disabled=move || busy.get()>
                    {button}
                </button>
            </form>
        </details>
    }
    .into_any()
}
