//! The page that creates a sandbox.
//!
//! The form posts to `/console/create`, which answers with this page again when something is wrong:
//! the input and its problems come back as [`Draft`]. With script the same form calls server
//! functions instead, and checks the input while the user types.

use leptos::{ev, prelude::*, task::spawn_local};
use leptos_meta::Title;
use leptos_router::hooks::use_navigate;

use super::{
    Draft, api,
    code::EquivalentCode,
    fields::Fields,
    state::State,
    summary::{SUMMARY, Summary},
};
use crate::{browser, frame::Toasts, ui::Icon, view::Creation};

/// The page.
#[component]
pub fn CreatePage() -> impl IntoView {
    let state = State::new(SharedValue::new(use_context::<Draft>).into_inner());
    let navigate = use_navigate();
    let toasts = Toasts::current();
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        if state.busy.get_untracked() {
            return;
        }
        let navigate = navigate.clone();
        state.begin();
        spawn_local(async move {
            let (problems, refusal) = match api::create(state.form.get_untracked()).await {
                // The sandbox's page follows its stages.
                Ok(Creation::Made(id)) => {
                    toasts.good(format!("{} is being created", id.short()));
                    navigate(&format!("/console/sandboxes/{id}"), Default::default());
                    return;
                }
                Ok(Creation::Invalid(problems)) => (problems, None),
                Ok(Creation::Refused(why)) => (Vec::new(), Some(why)),
                Err(error) => (Vec::new(), Some(error.to_string())),
            };
            state.refuse(problems, refusal);
            browser::focus_when_shown(SUMMARY);
        });
    };
    view! {
        <Title text="Create" />
        <div class="page-head">
            <h1>"Create a sandbox"</h1>
        </div>
        <div class="split">
            <form method="post" action="/console/create" class="card form" on:submit=submit novalidate>
                <Summary state />
                <Fields state />
                <div class="form-foot">
                    <button
                        type="submit"
                        class="button primary"
                        aria-disabled=move || state.busy.get().then_some("true")
                    >
                        <Icon name="plus" />
                        "Create"
                    </button>
                    <p class="fine">"An image that is not on the host is pulled first."</p>
                </div>
            </form>
            <EquivalentCode state />
        </div>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::super::Field;

    #[test]
    fn every_field_of_the_form_can_be_focused() {
        let ids = Field::ALL.iter().filter_map(|field| field.input_id());
        assert_eq!(ids.count(), Field::ALL.len() - 1);
    }
}
