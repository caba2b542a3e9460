//! How many sandboxes a pool keeps: the fields, and the form that changes it.

use leptos::{ev, prelude::*, task::spawn_local};
use osb_protocol::lifecycle::PoolCapacity;

use super::{
    api,
    forms::{CapacityForm, NUMBERS, Number},
};
use crate::{
    form::{self, Progress, TextField},
    frame::Toasts,
    pool::address,
    sandbox::ActButton,
    view::{LOOKS_ONLY, offers_changes},
};

/// The four numbers.
#[component]
pub(super) fn CapacityFields(
    /// Begins the ids.
    id: &'static str,
    progress: Progress,
    /// What they begin with, in their order.
    first: [String; 4],
) -> impl IntoView {
    let field = |(number, value): (&Number, String)| {
        view! {
            <TextField
                id=format!("{id}-{}", number.name)
                label=number.label
                name=number.name
                progress
                value
                is_number=true
                help=number.help
            />
        }
    };
    NUMBERS
        .iter()
        .zip(first)
        .map(field)
        .collect_view()
        .into_any()
}

/// The form on the page of a pool.
#[component]
pub(super) fn ResizeForm(
    /// Name of the pool.
    name: String,
    capacity: Memo<PoolCapacity>,
    /// Reads the page again.
    read_again: Callback<()>,
) -> impl IntoView {
    let progress = Progress::new();
    let toasts = Toasts::current();
    let may_change = offers_changes();
    let why = Signal::derive(move || (!may_change).then_some(LOOKS_ONLY));
    let action = [&address(&name), "/capacity"].concat();
    let submit = move |event: ev::SubmitEvent| {
        let Some(sent) = form::read::<CapacityForm>(&event) else {
            return;
        };
        if !progress.begin() {
            return;
        }
        let name = name.clone();
        spawn_local(async move {
            let call = api::resize(name.clone(), sent);
            if progress.answer(call, toasts).await.is_some() {
                toasts.good(format!("The capacity of {name} is changed"));
            }
            let _ = read_again.try_run(());
        });
    };
    // A capacity that another client has set meanwhile is shown, to go on from.
    let fields = move || {
        let capacity = capacity.get();
        let first = [
            capacity.buffer_min,
            capacity.buffer_max,
            capacity.pool_min,
            capacity.pool_max,
        ];
        let first = first.map(|number| number.to_string());
        view! { <CapacityFields id="capacity" progress first /> }
    };
    view! {
        <form method="post" action=action class="pool-capacity" on:submit=submit>
            {fields}
            <p class="add-foot">
                <ActButton
                    id="resize"
                    icon="scaling"
                    text="Change the capacity"
                    why
                    busy=progress.busy
                    about="of this pool"
                />
            </p>
        </form>
    }
    .into_any()
}
