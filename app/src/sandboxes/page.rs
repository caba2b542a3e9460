//! The page of the list: filter, tabs of states, table.

use std::time::Duration;

use leptos::prelude::*;

use super::{
    ListQuery, Rows, api,
    ended::EndedTable,
    filter::Filter,
    filter_box::FilterBox,
    list_page::ListPage,
    query::ENDED,
    table::{LiveTable, create_link},
    usage::Usage,
};
use crate::{
    live::{Live, RowChange},
    query_string::use_query,
    ui::{Icon, LoadError, PageTitle, settled, waiting},
    view::{ENDED_MAX, SandboxList, StateCounts},
};

/// Shortest time between two updates of the rows. The first change is shown at once, and those that
/// follow are gathered, so that a storm of them does not keep the browser from drawing.
const BETWEEN_UPDATES: Duration = Duration::from_millis(80);
/// Shortest time between two reads of the sandboxes that are gone.
const REREAD: Duration = Duration::from_secs(2);

/// The live list of sandboxes.
#[component]
pub fn SandboxesPage() -> impl IntoView {
    let params = use_query();
    let query = Memo::new(move |_| ListQuery::from_url(|name| params.read().get(name)));
    let filter = Memo::new(move |_| Filter::parse(&query.read().q));
    let rows = Rows::new();
    let page = ListPage {
        query,
        filter,
        rows,
        usage: Usage::new(),
    };
    follow(rows);
    // The server is asked again only for what the browser does not have.
    let of_ended = Memo::new(move |_| {
        let query = query.get();
        query.is_of_ended().then_some(query)
    });
    let rereads = reread_ended(rows, of_ended);
    let list = Resource::new_blocking(
        move || (of_ended.get(), rereads.get()),
        move |(of_ended, _)| api::list(of_ended.unwrap_or_else(|| query.get_untracked())),
    );
    view! {
        <PageTitle text="Sandboxes" />
        <div class="page-head">
            <h1>"Sandboxes"</h1>
            {create_link("Create", "button primary")}
        </div>
        <FilterBox page />
        <Transition fallback=Skeleton>
            {waiting(move || async move {
                match list.await {
                    Ok(list) => {
                        rows.render(&list);
                        settled(view! { <Loaded list page /> }.into_any())
                    }
                    Err(error) => view! { <LoadError error again=move |()| list.refetch() /> }.into_any(),
                }
            })}
        </Transition>
    }
    .into_any()
}

/// Keeps the rows up to date.
fn follow(rows: Rows) {
    let live = use_context::<Live>();
    let updates = Updates {
        rows,
        gathered: StoredValue::new(Vec::new()),
        is_resting: StoredValue::new(false),
    };
    Effect::new(move |_| {
        let Some(live) = live else {
            return;
        };
        live.watch_list(
            move |list| {
                updates.gathered.set_value(Vec::new());
                rows.replace(list);
            },
            move |change| updates.take(change),
        );
    });
}

/// Changes of rows on their way to the page. Copies share them.
#[derive(Clone, Copy)]
struct Updates {
    rows: Rows,
    gathered: StoredValue<Vec<RowChange>>,
    /// Whether there was an update within the last [`BETWEEN_UPDATES`].
    is_resting: StoredValue<bool>,
}

impl Updates {
    fn take(self, change: RowChange) {
        self.gathered.update_value(|gathered| gathered.push(change));
        if !self.is_resting.get_value() {
            self.show();
        }
    }

    /// Shows what was gathered. Nothing is shown for a while after that, and then what came meanwhile.
    fn show(self) {
        // The page may be gone by now.
        let Some(changes) = self.gathered.try_update_value(std::mem::take) else {
            return;
        };
        self.is_resting.set_value(!changes.is_empty());
        if !changes.is_empty() {
            self.rows.apply(changes);
            set_timeout(move || self.show(), BETWEEN_UPDATES);
        }
    }
}

/// Counts the times when the sandboxes that are gone are to be read again, because another one is.
fn reread_ended(rows: Rows, of_ended: Memo<Option<ListQuery>>) -> RwSignal<u32> {
    let rereads = RwSignal::new(0);
    let is_planned = StoredValue::new(false);
    Effect::new(move |before: Option<u64>| {
        let removals = rows.removals();
        let is_shown = of_ended.with_untracked(Option::is_some);
        if before.is_some_and(|before| before != removals) && is_shown && !is_planned.get_value() {
            is_planned.set_value(true);
            set_timeout(
                move || {
                    is_planned.try_update_value(|is_planned| *is_planned = false);
                    rereads.try_update(|rereads| *rereads += 1);
                },
                REREAD,
            );
        }
        removals
    });
    rereads
}

#[component]
fn Loaded(list: SandboxList, page: ListPage) -> impl IntoView {
    let warning = list.warning.clone().map(|why| {
        view! {
            <p class="banner" data-tone="bad" role="status">
                <Icon name="triangle-alert" />
                {why}
            </p>
        }
    });
    let table = match list.of_ended {
        true => view! { <EndedTable list page /> }.into_any(),
        false => view! { <LiveTable page /> }.into_any(),
    };
    view! {
        {warning}
        <StateTabs page />
        {table}
    }
    .into_any()
}

/// Links to the list limited to each state, with the number of sandboxes in it.
#[component]
fn StateTabs(page: ListPage) -> impl IntoView {
    let counts = Memo::new(move |_| page.rows.counts());
    let link =
        |label: &'static str, state: &'static str, count: fn(&StateCounts) -> Option<usize>| {
            let query = page.query;
            let number = move || {
                let count = counts.with(count)?;
                Some(match count < ENDED_MAX {
                    true => count.to_string(),
                    false => [&count.to_string(), "+"].concat(),
                })
            };
            view! {
                <a
                    href=move || query.read().with_state(state).url()
                    aria-current=move || (query.read().state == state).then_some("true")
                >
                    {label}
                    " "
                    <span class="count num">{number}</span>
                </a>
            }
        };
    view! {
        <nav class="tabs state-tabs" aria-label="States">
            {link("All", "", |counts| Some(counts.all))}
            {link("Running", "Running", |counts| Some(counts.running))}
            {link("Pending", "Pending", |counts| Some(counts.pending))}
            {link("Paused", "Paused", |counts| Some(counts.paused))}
            {link("Failed", "Failed", |counts| Some(counts.failed))}
            {link("Ended", ENDED, |counts| counts.ended)}
        </nav>
    }
    .into_any()
}

/// A skeleton of the list while it loads.
#[component]
fn Skeleton() -> impl IntoView {
    let line = |_| view! { <div class="skeleton-row"></div> };
    view! { <div class="skeleton" aria-busy="true" aria-label="Loading">{(0..6).map(line).collect_view()}</div> }
}
