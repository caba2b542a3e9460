//! Text fields of the create form.

use leptos::{ev, html, prelude::*};

use super::{Field, state::State};

/// A field with its label, help and problem.
#[component]
pub(super) fn TextField(
    state: State,
    field: Field,
    name: &'static str,
    #[prop(into)] help: Signal<String>,
    /// Id of its suggestions.
    #[prop(optional)]
    list: Option<&'static str>,
    /// Whether what is typed is not to be seen.
    #[prop(optional)]
    hidden: bool,
) -> impl IntoView {
    view! {
        <div class="field">
            <label for=name>{field.label()}</label>
            <TextInput state field name list hidden />
            <p id=format!("{name}-help") class="help">{help}</p>
            <p id=format!("{name}-problem") class="problem">{move || state.problem(field)}</p>
        </div>
    }
    .into_any()
}

/// The input of a text field.
#[component]
pub(super) fn TextInput(
    state: State,
    field: Field,
    name: &'static str,
    list: Option<&'static str>,
    #[prop(optional)] hidden: bool,
) -> impl IntoView {
    let kind = if hidden { "password" } else { "text" };
    let complete = if hidden { "new-password" } else { "off" };
    let initial = state
        .form
        .with_untracked(|form| form.text(field).to_owned());
    let invalid = move || state.problem(field).is_some().then_some("true");
    let input = NodeRef::<html::Input>::new();
    follow(state, field, input);
    view! {
        <input
            id=name
            name=name
            node_ref=input
            type=kind
            value=initial
            list=list
            spellcheck="false"
            autocapitalize="off"
            autocomplete=complete
            aria-invalid=invalid
            aria-describedby=format!("{name}-problem {name}-help")
            on:input=move |event: ev::Event| state.edit(field, event_target_value(&event))
        />
    }
    .into_any()
}

/// Lets an input follow the form, which changes with a preset. At first the form follows the input: the
/// user may have typed before the page was live.
fn follow(state: State, field: Field, input: NodeRef<html::Input>) {
    let text = Memo::new(move |_| state.form.read().text(field).to_owned());
    Effect::new(move |ran: Option<()>| {
        let wanted = text.get();
        let Some(input) = input.get() else {
            return;
        };
        let shown = input.value();
        if shown == wanted {
            return;
        }
        match ran {
            None => state.edit(field, shown),
            Some(()) => input.set_value(&wanted),
        }
    });
}
