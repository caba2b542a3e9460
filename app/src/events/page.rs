//! The page.

use leptos::prelude::*;
use osb_protocol::audit::AuditPage;

use super::{api, entry::EntryRow, filter::FilterForm};
use crate::{
    live::Live,
    query_string::use_query,
    ui::{ColumnTitle, Icon, LoadError, PageTitle, TableHead},
    view::{Answer, EventsQuery, EventsView},
};

/// Titles of the columns of entries.
const TITLES: &[ColumnTitle] = &[
    ColumnTitle::new("Time").class("e-at"),
    ColumnTitle::new("Outcome").class("e-outcome"),
    ColumnTitle::new("Action").class("e-action"),
    ColumnTitle::new("Object").class("e-object"),
    ColumnTitle::new("Who").class("e-who"),
    ColumnTitle::new("From").class("e-from"),
    ColumnTitle::new("Details").class("e-more").hidden(),
];

/// The page.
#[component]
pub fn EventsPage() -> impl IntoView {
    let params = use_query();
    let query = Memo::new(move |_| EventsQuery::from_url(|name| params.read().get(name)));
    let events = Resource::new_blocking(move || query.get(), api::read_events);
    let refresh = move |event: leptos::ev::MouseEvent| {
        event.prevent_default();
        events.refetch();
    };
    view! {
        <PageTitle text="Events & audit" />
        <div class="page-head">
            <h1>"Events & audit"</h1>
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
                let events_now = events.await;
                let query = query.get_untracked();
                match events_now {
                    Ok(view) => {
                        let again = Callback::new(move |()| events.refetch());
                        view! { <Loaded view query again /> }.into_any()
                    }
                    Err(error) => {
                        view! { <LoadError error again=move |()| events.refetch() /> }.into_any()
                    }
                }
            })}
        </Transition>
    }
    .into_any()
}

#[component]
fn Loaded(view: EventsView, query: EventsQuery, again: Callback<()>) -> impl IntoView {
    let EventsView {
        answer,
        actions,
        written,
    } = view;
    match answer {
        Answer::Done(page) => view! {
            <FilterForm query=query.clone() actions problems=Vec::new() again />
            <Newer query=query.clone() written again />
            <Entries page query />
        }
        .into_any(),
        Answer::Invalid(problems) => {
            view! { <FilterForm query actions problems again /> }.into_any()
        }
        Answer::Refused(why) => view! {
            <p class="banner">
                <Icon name="info" />
                <span>{why}</span>
            </p>
        }
        .into_any(),
    }
}

/// Says that the trail has newer entries, and offers them: rows that move while they are read are worse
/// than rows that are a little old.
#[component]
fn Newer(
    query: EventsQuery,
    /// Entries that the trail had taken when these were read.
    written: u64,
    again: Callback<()>,
) -> impl IntoView {
    // Another process counts from zero.
    let now = RwSignal::new(written);
    let live = use_context::<Live>().filter(|_| query.cursor.is_empty());
    Effect::new(move |_| {
        if let Some(live) = live {
            live.watch_events(move |count| now.set(count));
        }
    });
    let text = move || match now.get().checked_sub(written) {
        Some(1) => "1 newer entry".to_owned(),
        Some(more) => format!("{more} newer entries"),
        None => "Newer entries".to_owned(),
    };
    view! {
        <p class="newer" role="status">
            <Show when=move || now.get() != written>
                <button type="button" class="button" on:click=move |_| again.run(())>
                    <Icon name="arrow-up" />
                    {text}
                </button>
            </Show>
        </p>
    }
    .into_any()
}

#[component]
fn Entries(page: AuditPage, query: EventsQuery) -> impl IntoView {
    let AuditPage { items, next } = page;
    if items.is_empty() {
        return view! { <Empty is_filtered=!query.is_empty() /> }.into_any();
    }
    let newest = (!query.cursor.is_empty()).then(|| {
        view! {
            <a class="button" href=query.at_place("").url()>
                "Newest"
            </a>
        }
    });
    let older = next.map(|next| {
        view! {
            <a class="button" href=query.at_place(&next).url()>
                "Older"
            </a>
        }
    });
    let file = |format| {
        let all = query.at_place("");
        let query = all.query_string(&[("format", format)]);
        format!("/console/events/download{query}")
    };
    let count = match items.len() {
        1 => "1 entry on this page".to_owned(),
        count => format!("{count} entries on this page"),
    };
    view! {
        <table class="events">
            <caption class="visually-hidden">"Entries of the audit trail, newest first"</caption>
            <TableHead of=TITLES />
            <tbody>
                {items.into_iter().map(|entry| view! { <EntryRow entry /> }).collect_view()}
            </tbody>
        </table>
        <nav class="pager" aria-label="Pages">
            <p class="fine num">{count}</p>
            <div class="choices">
                <a class="button" rel="external" download href=file("csv")>
                    <Icon name="download" />
                    "CSV"
                </a>
                <a class="button" rel="external" download href=file("jsonl")>
                    <Icon name="download" />
                    "JSON lines"
                </a>
                {newest}
                {older}
            </div>
        </nav>
    }
    .into_any()
}

#[component]
fn Empty(is_filtered: bool) -> impl IntoView {
    let (title, text) = match is_filtered {
        true => ("No matches", "No entry of the trail matches this filter."),
        false => (
            "Nothing yet",
            "Whatever is created, changed or deleted, and every refused sign-in, is recorded here.",
        ),
    };
    view! {
        <section class="empty">
            <Icon name="scroll-text" />
            <h2>{title}</h2>
            <p>{text}</p>
        </section>
    }
    .into_any()
}
