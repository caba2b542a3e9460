//! The way from something that sandboxes are created from to the create form.

use leptos::prelude::*;

use super::BarredButton;
use crate::{
    ui::Icon,
    view::{LOOKS_ONLY, offers_changes},
};

/// A link in a row to the create form.
#[component]
pub(crate) fn CreateLink(
    /// The form with the source.
    address: String,
    /// Title of the source.
    name: Signal<String>,
    /// Why nothing can be created from it.
    why: Signal<Option<&'static str>>,
) -> impl IntoView {
    if !offers_changes() {
        let label = format!("Create a sandbox from {}", name.get_untracked());
        return view! { <BarredButton label icon="plus" /> }.into_any();
    }
    let label = move || ["Create a sandbox from ", &name.get()].concat();
    view! {
        <a
            class="icon-button"
            role="link"
            href=move || why.get().is_none().then(|| address.clone())
            tabindex=move || why.get().map(|_| "0")
            aria-disabled=move || why.get().map(|_| "true")
            aria-label=move || match why.get() {
                Some(why) => [&label(), ": ", why].concat(),
                None => label(),
            }
            title=move || why.get().unwrap_or("Create a sandbox from this")
        >
            <Icon name="plus" />
        </a>
    }
    .into_any()
}

/// The same for the page of the source.
#[component]
pub(crate) fn CreateButton(
    /// The form with the source.
    address: String,
    /// What the palette calls it.
    command: &'static str,
    /// Its text.
    #[prop(default = "Create a sandbox")]
    text: &'static str,
    /// Why nothing can be created from it.
    hindrance: Signal<Option<&'static str>>,
) -> impl IntoView {
    let may_change = offers_changes();
    let why = Memo::new(move |_| match may_change {
        true => hindrance.get(),
        false => Some(LOOKS_ONLY),
    });
    view! {
        <a
            class="button primary"
            role="link"
            href=move || why.get().is_none().then(|| address.clone())
            tabindex=move || why.get().map(|_| "0")
            data-command=move || why.get().is_none().then_some(command)
            aria-disabled=move || why.get().map(|_| "true")
            aria-describedby="create-why"
            title=move || why.get()
        >
            <Icon name="plus" />
            {text}
        </a>
        <span id="create-why" class="visually-hidden">{move || why.get()}</span>
    }
    .into_any()
}
