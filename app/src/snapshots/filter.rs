//! What limits the list: links for the states, and a form for name and sandbox.

use leptos::{ev, prelude::*};
use leptos_router::{NavigateOptions, hooks::use_navigate};
use osb_protocol::lifecycle::SnapshotState;

use super::shown::Shown;
use crate::{
    browser::{self, FOCUS_FILTER, Memory},
    ui::Icon,
    view::{SnapshotTotals, SnapshotsQuery},
};

/// The form. It is sent as an address, so every view can be shared.
#[component]
pub(super) fn FilterForm(
    /// The filter in force.
    query: SnapshotsQuery,
    /// Reads the list again.
    again: Callback<()>,
) -> impl IntoView {
    let navigate = use_navigate();
    let now = query.clone();
    // The browser itself would leave the page, also for a server that is away.
    let submit = move |event: ev::SubmitEvent| {
        let Some(fields) = browser::form_fields(&event) else {
            return;
        };
        event.prevent_default();
        let wanted = SnapshotsQuery::from_url(|name| fields.get(name));
        if wanted == now.on_page(1) {
            again.run(());
            return;
        }
        let options = NavigateOptions {
            scroll: false,
            ..Default::default()
        };
        navigate(&wanted.url(), options);
    };
    // The key for the filter may have been pressed on another page.
    Effect::new(move |before: Option<()>| {
        if before.is_none() && Memory::Tab.get(FOCUS_FILTER).is_some() {
            Memory::Tab.set(FOCUS_FILTER, None);
            browser::focus("filter");
        }
    });
    let clear = query.filters().then(|| {
        view! {
            <a class="button" href="/console/snapshots">
                "Clear"
            </a>
        }
    });
    view! {
        <form
            method="get"
            action="/console/snapshots"
            class="card snapshot-filter"
            role="search"
            on:submit=submit
        >
            <div class="field">
                <label for="filter">"Name (all of it)"</label>
                <input
                    id="filter"
                    type="text"
                    name="name"
                    value=query.name.clone()
                    autocomplete="off"
                    autocapitalize="off"
                    spellcheck="false"
                />
            </div>
            <div class="field">
                <label for="snapshot-sandbox">"Id of the sandbox"</label>
                <input
                    id="snapshot-sandbox"
                    class="mono"
                    type="text"
                    name="sandbox"
                    value=query.sandbox.clone()
                    autocomplete="off"
                    autocapitalize="off"
                    spellcheck="false"
                />
            </div>
            <input type="hidden" name="state" value=query.state />
            <p class="snapshot-filter-foot">
                <button type="submit" class="button">
                    <Icon name="search" />
                    "Filter"
                </button>
                {clear}
            </p>
        </form>
    }
    .into_any()
}

/// Links to the list limited to each state, with the number of snapshots in it.
#[component]
pub(super) fn StateTabs(query: SnapshotsQuery, shown: Shown) -> impl IntoView {
    let totals = Memo::new(move |_| shown.list.read().totals);
    let link = |label: &'static str, state: &'static str, count: fn(&SnapshotTotals) -> u64| {
        let is_current = query.state == state;
        view! {
            <a
                href=query.with_state(state).url()
                aria-current=is_current.then_some("true")
            >
                {label}
                " "
                <span class="count num">{move || totals.with(count).to_string()}</span>
            </a>
        }
    };
    view! {
        <nav class="tabs state-tabs" aria-label="States">
            {link("All", "", |totals| totals.all)}
            {link("Ready", SnapshotState::Ready.as_str(), |totals| totals.ready)}
            {link("Creating", SnapshotState::Creating.as_str(), |totals| totals.creating)}
            {link("Failed", SnapshotState::Failed.as_str(), |totals| totals.failed)}
            {link("Deleting", SnapshotState::Deleting.as_str(), |totals| totals.deleting)}
        </nav>
    }
    .into_any()
}
