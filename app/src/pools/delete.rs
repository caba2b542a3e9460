//! Deleting a pool, after a question. Without script a page asks.

use leptos::prelude::*;
use leptos_router::hooks::use_navigate;

use super::api;
use crate::{
    deletion,
    form::Deleting,
    pool::address,
    sandbox::ActButton,
    view::{LOOKS_ONLY, offers_changes},
};

/// A delete button for the page of a pool, which leads to the list afterwards.
#[component]
pub(super) fn DeleteForm(
    /// Name of the pool.
    name: String,
    /// How many of its sandboxes are claimed.
    claimed: Memo<u32>,
    /// Reads the page again.
    read_again: Callback<()>,
) -> impl IntoView {
    let navigate = use_navigate();
    let may_change = offers_changes();
    let why = Signal::derive(move || (!may_change).then_some(LOOKS_ONLY));
    let action = [&address(&name), "/delete"].concat();
    let title = deletion::pool_question(&name);
    let done = format!("The pool {name} is deleted");
    let deleting = Deleting {
        question: Callback::new(move |()| {
            (title.clone(), deletion::of_pool(claimed.get_untracked()))
        }),
        yes: "Delete pool",
        done: Callback::new(move |()| done.clone()),
        then: Callback::new(move |is_done| match is_done {
            true => navigate("/console/pools", Default::default()),
            false => drop(read_again.try_run(())),
        }),
    };
    let (ask, busy) = deleting.form(move || api::delete(name.clone()));
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
                about="this pool"
            />
        </form>
    }
    .into_any()
}
