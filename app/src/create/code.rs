//! The form's request as code, beside the form.

use leptos::prelude::*;
use osb_protocol::FieldError;

use super::{more, state::State, summary::ProblemList};
use crate::calls::{self, LanguageTabs};

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
                <LanguageTabs
                    name="language"
                    code=move |(language, target)| {
                        calls::create(language, &target, &more::masked(&state.request.read().body))
                    }
                />
                <Left state />
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

/// What of a copy the code does not have.
#[component]
fn Left(state: State) -> impl IntoView {
    let names = Memo::new(move |_| state.form.read().kept_names());
    let note = move || {
        let names = names.get();
        let text = names.join(", ");
        (!names.is_empty()).then(|| {
            view! {
                <p class="help">
                    "The code lacks these variables, whose values stay on the server: " {text} "."
                </p>
            }
        })
    };
    let has_password = Memo::new(move |_| !state.form.read().auth_password.is_empty());
    let password = move || {
        has_password.get().then(|| {
            view! {
                <p class="help">
                    "Write the password of the registry in place of " <code>{more::PASSWORD}</code> "."
                </p>
            }
        })
    };
    view! { {note} {password} }.into_any()
}
