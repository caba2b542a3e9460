//! The form that adds a pool.

use leptos::{ev, prelude::*, task::spawn_local};
use leptos_router::hooks::use_navigate;

use super::{
    api,
    capacity::CapacityFields,
    forms::{FORM, PoolDraft, PoolForm},
};
use crate::{
    browser,
    form::{self, Progress, TextField},
    frame::Toasts,
    pool::address,
    sandbox::ActButton,
    ui::Icon,
    view::{LOOKS_ONLY, offers_changes},
    workload::WorkloadFields,
};

/// A button with the form behind it; open if the form was refused.
#[component]
pub(super) fn AddForm(draft: Option<PoolDraft>) -> impl IntoView {
    if !offers_changes() {
        let why = Signal::derive(|| Some(LOOKS_ONLY));
        return view! {
            <div>
                <ActButton id="add-pool" icon="plus" text="Add a pool" why busy=false />
            </div>
        }
        .into_any();
    }
    let is_open = draft.is_some();
    let (first, problems, refusal) = match draft {
        Some(draft) => (draft.form, draft.problems, draft.refusal),
        None => (PoolForm::default(), Vec::new(), None),
    };
    let progress = Progress::with(problems);
    let (navigate, toasts) = (use_navigate(), Toasts::current());
    let submit = move |event: ev::SubmitEvent| {
        let Some(sent) = form::read::<PoolForm>(&event) else {
            return;
        };
        if !progress.begin() {
            return;
        }
        let navigate = navigate.clone();
        spawn_local(async move {
            match progress.answer(api::create(sent), toasts).await {
                Some(name) => {
                    toasts.good(format!("The pool {name} is added"));
                    navigate(&address(&name), Default::default());
                }
                None => request_animation_frame(|| {
                    browser::focus_first_visible(&[".pool-add [aria-invalid]"]);
                }),
            }
        });
    };
    let workload = [first.entrypoint, first.cpu, first.memory, first.env];
    let capacity = [
        first.buffer_min.clone(),
        first.buffer_max.clone(),
        first.pool_min.clone(),
        first.pool_max.clone(),
    ];
    view! {
        <details class="add card pool-add" open=is_open>
            <summary class="button" data-command="Add a pool">
                <Icon name="plus" />
                "Add a pool"
            </summary>
            <form method="post" action="/console/pools" class="add-form" on:submit=submit>
                <p class="problem add-foot" role="alert">
                    {refusal} {move || progress.problem(FORM)}
                </p>
                <TextField
                    id="pool-name".to_owned()
                    label="Name"
                    name="name"
                    progress
                    value=first.name
                    help="Lower-case letters, digits and -"
                />
                <TextField
                    id="pool-image".to_owned()
                    label="Image"
                    name="image"
                    progress
                    value=first.image
                    help="Such as python:3.12"
                />
                <WorkloadFields
                    id="pool"
                    progress
                    first=workload
                    entrypoint_help="Runs from the claim on, unless the create names another. Empty: tail -f /dev/null."
                    limit_helps=["Cores: 0.5 or 500m. Empty: no limit.", "512Mi, 2Gi … Empty: no limit."]
                    env_help="One per line: NAME=value. A create may add and change variables."
                />
                <CapacityFields id="pool" progress first=capacity />
                <p class="add-foot">
                    <button
                        type="submit"
                        class="button primary"
                        aria-disabled=move || progress.busy.get().then_some("true")
                    >
                        "Add the pool"
                    </button>
                </p>
            </form>
        </details>
    }
    .into_any()
}
