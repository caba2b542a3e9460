//! The page of the list.

use leptos::prelude::*;

use super::{
    filter::{FilterForm, StateTabs},
    row::Row,
    shown::Shown,
};
use crate::{
    query_string::use_query,
    snapshot::{self, offers_snapshots, size},
    ui::{BeyondPages, ColumnTitle, Icon, LoadError, NotOffered, PageTitle, Pager, TableHead},
    view::{SnapshotList, SnapshotsQuery},
};

/// Titles of the columns.
const TITLES: &[ColumnTitle] = &[
    ColumnTitle::new("Snapshot").class("c-name"),
    ColumnTitle::new("State").class("c-state"),
    ColumnTitle::new("Sandbox").class("c-source"),
    ColumnTitle::new("Based on").class("c-parent"),
    ColumnTitle::new("Size").class("c-size"),
    ColumnTitle::new("Age").class("c-age"),
    ColumnTitle::new("In use by").class("c-users"),
    ColumnTitle::new("Actions").class("c-actions").hidden(),
];

/// How one gets the first one.
const HOW: &str = "A snapshot keeps the files of a sandbox, to create others from. To take one, open a sandbox that runs and choose “Snapshot”, or send POST /v1/sandboxes/{id}/snapshots.";

/// The list of snapshots.
#[component]
pub fn SnapshotsPage() -> impl IntoView {
    if !offers_snapshots() {
        let text = "The runtime of this server has no snapshots.";
        return view! { <NotOffered title="Snapshots" icon="camera" text /> }.into_any();
    }
    let params = use_query();
    let query = Memo::new(move |_| SnapshotsQuery::from_url(|name| params.read().get(name)));
    let list = Resource::new_blocking(move || query.get(), snapshot::list);
    let refresh = move |event: leptos::ev::MouseEvent| {
        event.prevent_default();
        list.refetch();
    };
    view! {
        <PageTitle text="Snapshots" />
        <div class="page-head">
            <h1>"Snapshots"</h1>
            <a class="button" rel="external" href=move || query.read().url() on:click=refresh>
                <Icon name="refresh-cw" />
                "Refresh"
            </a>
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
                let list_now = list.await;
                let query = query.get_untracked();
                match list_now {
                    Ok(now) => {
                        let again = Callback::new(move |()| list.refetch());
                        view! { <Loaded list=now query again /> }.into_any()
                    }
                    Err(error) => {
                        view! { <LoadError error again=move |()| list.refetch() /> }.into_any()
                    }
                }
            })}
        </Transition>
    }
    .into_any()
}

#[component]
fn Loaded(list: SnapshotList, query: SnapshotsQuery, again: Callback<()>) -> impl IntoView {
    let shown = Shown::new(list, query.clone());
    shown.follow();
    let is_empty = Memo::new(move |_| shown.list.read().totals.all == 0);
    let has_match = Memo::new(move |_| !shown.list.read().rows.is_empty());
    let query = StoredValue::new(query);
    let table = move || match has_match.get() {
        true => view! { <Table shown query /> }.into_any(),
        false => view! { <NoMatch /> }.into_any(),
    };
    view! {
        <Show when=move || !is_empty.get() fallback=|| view! { <Empty /> }>
            <Usage shown />
            <FilterForm query=query.get_value() again />
            <StateTabs query=query.get_value() shown />
            {table}
        </Show>
    }
    .into_any()
}

/// What all snapshots take.
#[component]
fn Usage(shown: Shown) -> impl IntoView {
    let text = move || {
        let totals = shown.list.read().totals;
        let (count, based_on) = match totals.all {
            1 => ("1 snapshot takes ".to_owned(), "image that it is based on."),
            count => (
                format!("{count} snapshots take "),
                "images that they are based on.",
            ),
        };
        [
            &count,
            size(Some(totals.bytes)).as_str(),
            " on disk, without the ",
            based_on,
        ]
        .concat()
    };
    view! { <p class="snapshot-usage num">{text}</p> }.into_any()
}

#[component]
fn Table(shown: Shown, query: StoredValue<SnapshotsQuery>) -> impl IntoView {
    let count = Signal::derive(move || {
        let list = shown.list.read();
        match list.matching as u64 == list.totals.all {
            true => format!("{} in total", list.matching),
            false => format!("{} of {}", list.matching, list.totals.all),
        }
    });
    let page = Signal::derive(move || shown.list.read().page);
    let last = Signal::derive(move || shown.list.read().last_page());
    let asked = query.with_value(|query| query.page);
    let address = move |page: usize| query.with_value(|query| query.on_page(page).url());
    view! {
        <BeyondPages asked page first=address(1) />
        <table class="list snapshots">
            <caption class="visually-hidden">"Snapshots, newest first"</caption>
            <TableHead of=TITLES />
            <tbody>
                <For
                    each=move || shown.ids()
                    key=Clone::clone
                    children=move |id| view! { <Row id shown /> }
                />
            </tbody>
        </table>
        <Pager count page last address />
    }
    .into_any()
}

/// There are no snapshots at all.
#[component]
fn Empty() -> impl IntoView {
    view! {
        <section class="empty">
            <Icon name="camera" />
            <h2>"No snapshots yet"</h2>
            <p>{HOW}</p>
            <a class="button" href="/console/sandboxes?state=Running">
                "Sandboxes that run"
            </a>
        </section>
    }
    .into_any()
}

#[component]
fn NoMatch() -> impl IntoView {
    view! {
        <section class="empty">
            <Icon name="camera" />
            <h2>"No matches"</h2>
            <p>"No snapshot matches this filter."</p>
            <a class="button" href="/console/snapshots">
                "Clear the filter"
            </a>
        </section>
    }
    .into_any()
}
