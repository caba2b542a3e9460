//! Copying text.

use std::time::Duration;

use leptos::prelude::*;

use super::Icon;
use crate::browser;

/// How long the button confirms the copy.
const SHOWN: Duration = Duration::from_millis(1_500);

/// A button that copies a text to the clipboard.
#[component]
pub fn CopyButton(
    /// What is copied.
    #[prop(into)]
    text: Signal<String>,
    /// What it is, for the button's label: `Copy <what>`.
    #[prop(into)]
    what: String,
) -> impl IntoView {
    let copied = RwSignal::new(false);
    let copy = move |_| {
        browser::copy(&text.get_untracked());
        copied.set(true);
        set_timeout(move || copied.set(false), SHOWN);
    };
    let icon = Signal::derive(move || if copied.get() { "check" } else { "copy" });
    let label = move || match copied.get() {
        true => "Copied".to_owned(),
        false => format!("Copy {what}"),
    };
    view! {
        <button type="button" class="icon-button needs-script" on:click=copy aria-label=label.clone() title=label>
            <Icon name=icon />
        </button>
    }
    .into_any()
}

/// Code with a button that copies it.
#[component]
pub fn CodeBlock(
    /// The code.
    #[prop(into)]
    code: Signal<String>,
    /// What it is.
    #[prop(into)]
    what: String,
) -> impl IntoView {
    view! {
        <div class="code-block">
            <CopyButton text=code what=what.clone() />
            <pre tabindex="0" role="region" aria-label=what>
                <code>{move || code.get()}</code>
            </pre>
        </div>
    }
    .into_any()
}
