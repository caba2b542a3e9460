//! Fields that several forms of the page have.

use leptos::{ev, form::FromFormData, prelude::*};
use osb_protocol::identity::Role;
use serde::de::DeserializeOwned;

use super::shown::Progress;

/// Reads a form that is being sent with script.
pub(super) fn read<T: DeserializeOwned>(event: &ev::SubmitEvent) -> Option<T> {
    event.prevent_default();
    // Only text fields and check boxes: nothing that could not be read.
    T::from_event(event).ok()
}

/// Empties the fields of the form that was sent.
pub(super) fn reset(event: &ev::SubmitEvent) -> impl FnOnce() + use<> {
    use leptos::{wasm_bindgen::JsCast, web_sys::HtmlFormElement};
    let form = event
        .target()
        .and_then(|form| form.dyn_into::<HtmlFormElement>().ok());
    move || {
        if let Some(form) = form {
            form.reset();
        }
    }
}

/// What a role means.
fn meaning(role: Role) -> &'static str {
    match role {
        Role::ReadOnly => "looks, changes nothing",
        Role::Operator => "creates, enters and deletes sandboxes",
        Role::ServiceAdmin => "everything, in every tenant",
    }
}

/// A field with a label, a help text and the problem of its answer.
#[component]
pub(super) fn Field(
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
pub(super) fn TextField(
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
                spellcheck="false"
                aria-describedby=described
                aria-invalid=is_wrong
            />
        </Field>
    }
    .into_any()
}

/// The choice of a role.
#[component]
pub(super) fn RoleField(
    id: String,
    progress: Progress,
    /// The role that it begins with.
    #[prop(optional)]
    chosen: Role,
) -> impl IntoView {
    let options = Role::ALL.map(|role| {
        view! {
            <option value=role.as_str() selected=role == chosen>
                {format!("{role}: {}", meaning(role))}
            </option>
        }
    });
    view! {
        <Field id=id.clone() label="Role" name="role" progress>
            <select id=id name="role">
                {options.collect_view()}
            </select>
        </Field>
    }
    .into_any()
}
