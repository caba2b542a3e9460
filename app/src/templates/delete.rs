//! Deleting a template, after a question. Without script a page asks.

use leptos::{ev, prelude::*};
use leptos_router::hooks::use_navigate;

use crate::{
    deletion,
    form::{DeleteIcon, Deleting},
    sandbox::{ActButton, BarredButton},
    template::{self, address},
    view::{LOOKS_ONLY, TemplateRow, kin_names, offers_changes},
};

/// A delete button for the list.
#[component]
pub(super) fn DeleteButton(
    /// Id of the template.
    id: String,
    /// Its row.
    row: Signal<TemplateRow>,
    /// Reads the list again.
    #[prop(into)]
    read_again: Callback<()>,
) -> impl IntoView {
    let name = Signal::derive(move || row.read().title().to_owned());
    if !offers_changes() {
        let label = format!("Delete {}", name.get_untracked());
        return view! { <BarredButton label icon="trash-2" /> }.into_any();
    }
    let label = Signal::derive(move || ["Delete ", &name.get()].concat());
    let action = [&address(&id), "/delete"].concat();
    let then = Callback::new(move |_| {
        let _ = read_again.try_run(());
    });
    let (ask, busy) = deletion_of(id, row, then);
    let is_hindered = Signal::derive(move || busy.get());
    view! {
        <form method="get" action=action on:submit=ask>
            <DeleteIcon label is_hindered />
        </form>
    }
    .into_any()
}

/// A delete button for the page of a template, which leads to the list afterwards.
#[component]
pub(super) fn DeleteForm(
    /// Id of the template.
    id: String,
    /// Its row.
    row: Signal<TemplateRow>,
    /// Reads the page again.
    #[prop(into)]
    read_again: Callback<()>,
) -> impl IntoView {
    let navigate = use_navigate();
    let may_change = offers_changes();
    let why = Signal::derive(move || (!may_change).then_some(LOOKS_ONLY));
    let action = [&address(&id), "/delete"].concat();
    let then = Callback::new(move |is_done| match is_done {
        true => navigate("/console/templates", Default::default()),
        false => drop(read_again.try_run(())),
    });
    let (ask, busy) = deletion_of(id, row, then);
    view! {
        <form method="get" action=action on:submit=ask>
            <ActButton
                id="delete"
                icon="trash-2"
                text="Delete"
                why
                busy
                danger=true
                asks=true
                about="this template"
            />
        </form>
    }
    .into_any()
}

/// The handler that asks in a dialog, and the busy signal of a delete.
fn deletion_of(
    id: String,
    row: Signal<TemplateRow>,
    then: Callback<bool>,
) -> (impl Fn(ev::SubmitEvent), RwSignal<bool>) {
    let deleting = Deleting {
        question: Callback::new(move |()| {
            row.with_untracked(|row| {
                let users = kin_names(&row.users, row.user_count);
                let title = deletion::template_question(row.title());
                (title, deletion::of_template(row.phase, &users))
            })
        }),
        yes: "Delete template",
        done: Callback::new(move |()| {
            let name = row.with_untracked(|row| row.title().to_owned());
            format!("The template {name} is deleted")
        }),
        then,
    };
    deleting.form(move || template::delete(id.clone()))
}
