//! The form's request as code, beside the form.

use leptos::prelude::*;
use osb_protocol::FieldError;

use super::{mirror, state::State, summary::ProblemList};
use crate::ui::CodeBlock;

/// The request as code, following the form. While a field cannot be read there is no request, so it
/// shows which one instead of code that would create something else.
#[component]
pub(super) fn EquivalentCode(state: State) -> impl IntoView {
    let unreadable = Memo::new(move |_| state.request.read().problems.clone());
    view! {
        <aside class="mirror" aria-labelledby="mirror-title">
            <h2 id="mirror-title">"Equivalent code"</h2>
            <Show
                when=move || unreadable.read().is_empty()
                fallback=move || view! { <Unreadable problems=unreadable /> }
            >
                <Code state />
            </Show>
        </aside>
    }
    .into_any()
}

#[component]
fn Unreadable(problems: Memo<Vec<FieldError>>) -> impl IntoView {
    view! {
        <div class="mirror-unreadable">
            <p>"There is no code for this form, because a part of it cannot be read:"</p>
            <ProblemList problems />
        </div>
    }
    .into_any()
}

#[component]
fn Code(state: State) -> impl IntoView {
    let origin = RwSignal::new((
        "http://127.0.0.1:8080".to_owned(),
        "127.0.0.1:8080".to_owned(),
    ));
    Effect::new(move |_| {
        let location = window().location();
        if let (Ok(base), Ok(host)) = (location.origin(), location.host()) {
            origin.set((base, host));
        }
    });
    let curl = Signal::derive(move || mirror::curl(&origin.read().0, &state.request.read().body));
    let python =
        Signal::derive(move || mirror::python(&origin.read().1, &state.request.read().body));
    view! {
        <h3>"curl"</h3>
        <CodeBlock code=curl what="the curl command" />
        <h3>"Python"</h3>
        <CodeBlock code=python what="the Python program" />
    }
    .into_any()
}
