//! The form's request as code, beside the form.

use leptos::prelude::*;
use osb_protocol::FieldError;

use super::{
    mirror::{Language, Target},
    state::State,
    summary::ProblemList,
};
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
                <Tabs state />
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
    view! { {note} }.into_any()
}

/// A tab for each language. They are radio buttons, which work without script, and whose arrow keys
/// browsers provide; style/create.css shows the code of the chosen one.
#[component]
fn Tabs(state: State) -> impl IntoView {
    let target = RwSignal::new(Target::default());
    Effect::new(move |_| {
        if let Ok(origin) = window().location().origin() {
            target.set(Target { origin });
        }
    });
    let tab = |language: Language| {
        view! {
            <label>
                <input
                    type="radio"
                    name="language"
                    value=language.id()
                    checked=language == Language::Curl
                />
                <span>{language.title()}</span>
            </label>
        }
    };
    let code = move |language: Language| {
        let code =
            Signal::derive(move || language.code(&target.read(), &state.request.read().body));
        view! {
            <div class="mirror-code" data-language=language.id()>
                <CodeBlock code what=format!("the code for {}", language.title()) />
            </div>
        }
    };
    view! {
        <fieldset class="mirror-tabs">
            <legend class="visually-hidden">"Language"</legend>
            {Language::ALL.map(tab).collect_view()}
        </fieldset>
        {Language::ALL.map(code).collect_view()}
    }
    .into_any()
}
