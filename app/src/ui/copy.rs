//! Copying text.

use std::time::Duration;

use leptos::{prelude::*, task::spawn_local};

use super::Icon;
use crate::browser;

/// How long the button confirms the copy.
const SHOWN: Duration = Duration::from_millis(1_500);
/// How long it says that nothing was copied.
const FAILED: Duration = Duration::from_secs(6);

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
    // Whether the last attempt worked.
    let copied = RwSignal::new(None::<bool>);
    let copy = move |_| {
        let text = text.get_untracked();
        spawn_local(async move {
            let has_worked = browser::copy(text).await;
            copied.try_set(Some(has_worked));
            let shown = if has_worked { SHOWN } else { FAILED };
            let rest = move || {
                copied.try_set(None);
            };
            set_timeout(rest, shown);
        });
    };
    let icon = Signal::derive(move || match copied.get() {
        Some(true) => "check",
        Some(false) => "triangle-alert",
        None => "copy",
    });
    let label = move || match copied.get() {
        Some(true) => "Copied".to_owned(),
        Some(false) => "The browser refused: select the text and press Ctrl+C".to_owned(),
        None => format!("Copy {what}"),
    };
    let refusal =
        move || (copied.get() == Some(false)).then_some("Not copied: select it and press Ctrl+C");
    view! {
        <button type="button" class="icon-button needs-script" on:click=copy aria-label=label.clone() title=label>
            <Icon name=icon />
        </button>
        <span class="copy-refusal" role="status">{refusal}</span>
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
