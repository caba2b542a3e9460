//! What a refused form is refused for, above its fields.

use leptos::{ev, prelude::*};
use osb_protocol::FieldError;

use super::{Field, state::State};
use crate::ui::Icon;

/// Id of the summary, which takes the focus when a form is refused.
pub(super) const SUMMARY: &str = "problems";

/// The problems of a refused form, each with a link to its field. It follows the form, so that it
/// gets shorter while the user mends it.
#[component]
pub(super) fn Summary(state: State) -> impl IntoView {
    let is_shown = move || {
        let has_reason = state.refusal.read().is_some() || !state.problems.read().is_empty();
        state.was_refused.get() && has_reason
    };
    view! {
        <Show when=is_shown>
            <section
                id=SUMMARY
                class="summary"
                tabindex="-1"
                autofocus
                aria-labelledby="problems-title"
            >
                <h2 id="problems-title">
                    <Icon name="triangle-alert" />
                    "The sandbox was not created"
                </h2>
                <p>{move || state.refusal.get()}</p>
                <ProblemList problems=Signal::derive(move || state.problems.get()) />
            </section>
        </Show>
    }
    .into_any()
}

/// Problems, each with a link to its field.
#[component]
pub(super) fn ProblemList(#[prop(into)] problems: Signal<Vec<FieldError>>) -> impl IntoView {
    let item = |problem: FieldError| {
        let field = Field::of(&problem);
        let link = field.input().map(|id| {
            let go = move |event: ev::MouseEvent| {
                event.prevent_default();
                State::focus(field);
            };
            view! {
                <a href=format!("#{id}") on:click=go>
                    {field.label()}
                </a>
                ": "
            }
        });
        view! { <li>{link} {problem.msg}</li> }
    };
    let items = move || problems.get().into_iter().map(item).collect_view();
    view! { <ul class="problem-list">{items}</ul> }.into_any()
}
