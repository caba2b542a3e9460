//! The page.

use leptos::prelude::*;

use super::{
    activity::{ActivityCard, FailuresCard},
    api,
    counters::{Counters, ReadinessBanner},
    host::HostCard,
    shown::Shown,
    trial::TrialCard,
};
use crate::{
    live::Live,
    ui::{LoadError, PageTitle},
    view::{Overview, StateCounts},
};

/// The page.
#[component]
pub fn OverviewPage() -> impl IntoView {
    let first = Resource::new_blocking(|| (), |()| api::read_overview());
    view! {
        <PageTitle text="Overview" />
        <div class="page-head">
            <h1>"Overview"</h1>
        </div>
        <Transition fallback=|| {
            view! {
                <div class="skeleton" aria-busy="true">
                    <div class="skeleton-row"></div>
                    <div class="skeleton-row"></div>
                </div>
            }
        }>
            {move || Suspend::new(async move {
                match first.await {
                    Ok(overview) => view! { <Loaded overview /> }.into_any(),
                    Err(error) => {
                        view! { <LoadError error again=move |()| first.refetch() /> }.into_any()
                    }
                }
            })}
        </Transition>
    }
    .into_any()
}

#[component]
fn Loaded(overview: Overview) -> impl IntoView {
    let shown = Shown::new(overview);
    let live = use_context::<Live>();
    Effect::new(move |_| {
        if let Some(live) = live {
            shown.follow(live);
        }
    });
    let counts = Memo::new(move |_| -> StateCounts { shown.pulse.read().counts });
    view! {
        <ReadinessBanner shown />
        <Counters shown counts />
        <div class="cards">
            <ActivityCard shown />
            <HostCard shown />
            <FailuresCard shown />
            <TrialCard />
        </div>
    }
    .into_any()
}
