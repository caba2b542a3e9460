//! The button of an action on a page.

use leptos::prelude::*;

use crate::ui::Icon;

/// The button of an action's form. While the action is not possible or under way, it keeps the focus,
/// says why, and does nothing.
#[component]
pub(crate) fn ActButton(
    /// Names the action in the page.
    id: &'static str,
    /// Its icon.
    #[prop(into)]
    icon: Signal<&'static str>,
    /// Its text.
    #[prop(into)]
    text: Signal<&'static str>,
    /// Why it is not possible.
    why: Signal<Option<&'static str>>,
    /// Whether it is under way.
    #[prop(into)]
    busy: Signal<bool>,
    /// Whether it destroys something.
    #[prop(optional)]
    danger: bool,
    /// Whether it opens a dialog.
    #[prop(optional)]
    asks: bool,
    /// What the page is about.
    #[prop(default = "this sandbox")]
    about: &'static str,
) -> impl IntoView {
    let is_hindered = move || busy.get() || why.get().is_some();
    let why_id = format!("{id}-why");
    view! {
        <button
            // One of another type does not send the form.
            type=move || if is_hindered() { "button" } else { "submit" }
            class="button"
            class:danger=danger
            data-act-button=id
            data-command=move || {
                let is_possible = !is_hindered();
                is_possible.then(|| [text.get(), " ", about].concat())
            }
            aria-haspopup=asks.then_some("dialog")
            aria-disabled=move || is_hindered().then_some("true")
            aria-describedby=why_id.clone()
            title=move || why.get()
        >
            <Icon name=icon />
            {move || text.get()}
        </button>
        <span id=why_id class="visually-hidden">{move || why.get()}</span>
    }
    .into_any()
}
