//! The field that several forms of the page have.

use leptos::prelude::*;
use osb_protocol::identity::Role;

use crate::form::{Field, Progress};

/// What a role means.
fn meaning(role: Role) -> &'static str {
    match role {
        Role::ReadOnly => "looks, changes nothing",
        Role::Operator => "creates, enters and deletes sandboxes",
        Role::ServiceAdmin => "everything, in every tenant",
    }
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
