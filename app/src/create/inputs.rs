//! Text fields of the create form.

use leptos::{ev, html, prelude::*};

use super::{Field, state::State};
use crate::form::raw_text;

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

/// A field with a command, which may have line breaks: an `<input>` would drop them without a word.
/// Enter sends the form, as in the other fields; Shift+Enter begins a line.
#[component]
pub(super) fn CommandField(
    state: State,
    field: Field,
    name: &'static str,
    help: &'static str,
) -> impl IntoView {
    let initial = state
        .form
        .with_untracked(|form| form.text(field).to_owned());
    let rows = move || state.form.read().text(field).lines().count().clamp(1, 8);
    let invalid = move || state.problem(field).is_some().then_some("true");
    let area = NodeRef::<html::Textarea>::new();
    let text = Memo::new(move |_| state.form.read().text(field).to_owned());
    Effect::new(move |ran: Option<()>| {
        let wanted = text.get();
        let Some(area) = area.get() else {
            return;
        };
        let shown = area.value();
        match ran {
            _ if shown == wanted => {}
            // The user may have typed before the page was live.
            None => state.edit(field, shown),
            Some(()) => area.set_value(&wanted),
        }
    });
    let on_key = move |event: ev::KeyboardEvent| {
        if event.key() != "Enter" || event.shift_key() || event.is_composing() {
            return;
        }
        let form = area.get_untracked().and_then(|area| area.form());
        if let Some(form) = form {
            event.prevent_default();
            // A form that the browser finds invalid says so itself.
            let _sent = form.request_submit();
        }
    };
    view! {
        <div class="field">
            <label for=name>{field.label()}</label>
            <textarea
                id=name
                name=name
                node_ref=area
                class="command"
                rows=rows
                spellcheck="false"
                autocapitalize="off"
                aria-invalid=invalid
                aria-describedby=format!("{name}-problem {name}-help")
                on:input=move |event: ev::Event| state.edit(field, event_target_value(&event))
                on:keydown=on_key
            >
                {raw_text(&initial)}
            </textarea>
            <p id=format!("{name}-help") class="help">{help}</p>
            <p id=format!("{name}-problem") class="problem">{move || state.problem(field)}</p>
        </div>
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
