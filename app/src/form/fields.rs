//! Fields with a label, a help text and the problem of their answer.

use leptos::prelude::*;

use super::Progress;

/// A field with a label, a help text and the problem of its answer.
#[component]
pub(crate) fn Field(
    /// Id of its control.
    id: String,
    /// Its label.
    label: &'static str,
    /// Its name in the form.
    name: &'static str,
    /// How the form stands.
    progress: Progress,
    /// What helps to fill it in.
    #[prop(optional)]
    help: &'static str,
    /// Its control.
    children: Children,
) -> impl IntoView {
    let (help_id, problem_id) = (format!("{id}-help"), format!("{id}-problem"));
    view! {
        <div class="field">
            <label for=id>{label}</label>
            {children()}
            <p id=help_id class="help">{help}</p>
            <p id=problem_id class="problem" role="alert">
                {move || progress.problem(name)}
            </p>
        </div>
    }
    .into_any()
}

/// A text field.
#[component]
pub(crate) fn TextField(
    id: String,
    label: &'static str,
    name: &'static str,
    progress: Progress,
    #[prop(optional)] help: &'static str,
    /// `text` or `password`.
    #[prop(default = "text")]
    kind: &'static str,
    /// The value that it begins with.
    #[prop(optional)]
    value: String,
    /// Whether the browser asks for it.
    #[prop(optional)]
    required: bool,
    /// Whether it takes a number.
    #[prop(optional)]
    is_number: bool,
    /// Id of its suggestions.
    #[prop(optional)]
    list: Option<&'static str>,
) -> impl IntoView {
    let described = format!("{id}-help {id}-problem");
    let is_wrong = move || progress.problem(name).is_some().then_some("true");
    let autocomplete = match kind {
        "password" => "new-password",
        _ => "off",
    };
    view! {
        <Field id=id.clone() label name progress help>
            <input
                id=id
                type=kind
                name=name
                value=value
                required=required
                list=list
                autocomplete=autocomplete
                inputmode=is_number.then_some("numeric")
                spellcheck="false"
                autocapitalize="off"
                aria-describedby=described
                aria-invalid=is_wrong
            />
        </Field>
    }
    .into_any()
}

/// Text inside a `<textarea>`. The server's renderer does not escape it, so this does; the browser
/// creates a text node, which needs no escapes.
pub(crate) fn raw_text(text: &str) -> String {
    if cfg!(target_arch = "wasm32") {
        return text.to_owned();
    }
    text.replace('&', "&amp;").replace('<', "&lt;")
}
