//! The fields of the create form.

use leptos::{ev, prelude::*};

use super::{
    Field, Lifetime,
    form::{BASE_IMAGE, PUBLIC_IMAGE},
    state::State,
};

/// All fields.
#[component]
pub(super) fn Fields(state: State) -> impl IntoView {
    view! {
        <TextField state field=Field::Image name="image"
            help=format!(
                "A container image, such as {PUBLIC_IMAGE}, or {BASE_IMAGE} after cargo xtask up."
            ) />
        <TextField state field=Field::Entrypoint name="entrypoint"
            help="The sandbox lives as long as this command. Quotes group words, as in a shell." />
        <LifetimeField state />
        <div class="pair">
            <TextField state field=Field::Cpu name="cpu" help="Cores: 0.5 or 500m." />
            <TextField state field=Field::Memory name="memory" help="512Mi, 2Gi …" />
        </div>
        <TextField state field=Field::Env name="env" lines=3 help="One per line: NAME=value." />
        <TextField state field=Field::Metadata name="metadata" lines=2
            help="Labels to find the sandbox by. One per line: name=value." />
    }
    .into_any()
}

/// A field with its label, help and problem.
#[component]
fn TextField(
    state: State,
    field: Field,
    name: &'static str,
    #[prop(into)] help: String,
    /// Height in lines; more than one makes it a text area.
    #[prop(default = 1)]
    lines: u32,
) -> impl IntoView {
    let initial = state
        .form
        .with_untracked(|form| form.text(field).to_owned());
    let on_input = move |event: ev::Event| state.edit(field, event_target_value(&event));
    let invalid = move || state.problem(field).is_some().then_some("true");
    let described = format!("{name}-problem {name}-help");
    let input = if lines > 1 {
        view! {
            <textarea id=name name=name rows=lines spellcheck="false" aria-invalid=invalid
                aria-describedby=described on:input=on_input>{raw_text(&initial)}</textarea>
        }
        .into_any()
    } else {
        view! {
            <input id=name name=name type="text" value=initial spellcheck="false" autocomplete="off"
                aria-invalid=invalid aria-describedby=described on:input=on_input />
        }
        .into_any()
    };
    view! {
        <div class="field">
            <label for=name>{field.label()}</label>
            {input}
            <p id=format!("{name}-help") class="help">{help}</p>
            <p id=format!("{name}-problem") class="problem">{move || state.problem(field)}</p>
        </div>
    }
    .into_any()
}

/// Text inside a `<textarea>`. The server's renderer does not escape it, so this does; the browser
/// creates a text node, which needs no escapes.
fn raw_text(text: &str) -> String {
    if cfg!(target_arch = "wasm32") {
        return text.to_owned();
    }
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[component]
fn LifetimeField(state: State) -> impl IntoView {
    let lifetime = move || state.form.read().lifetime;
    let choose = move |lifetime| move |_: ev::Event| state.set_lifetime(lifetime);
    view! {
        <fieldset class="field">
            <legend>"Lifetime"</legend>
            <div class="choices">
                <label>
                    <input type="radio" name="lifetime" value="limited"
                        checked=lifetime() == Lifetime::Limited
                        on:change=choose(Lifetime::Limited) />
                    "Deleted after a time"
                </label>
                <label>
                    <input type="radio" name="lifetime" value="manual"
                        checked=lifetime() == Lifetime::Manual
                        on:change=choose(Lifetime::Manual) />
                    "Kept until it is deleted"
                </label>
            </div>
            <div class="ttl" class:off=move || lifetime() == Lifetime::Manual>
                <TextField state field=Field::Ttl name="ttl"
                    help="90s, 30m, 2h or 1d; at least a minute. It can be renewed." />
            </div>
        </fieldset>
    }
    .into_any()
}
