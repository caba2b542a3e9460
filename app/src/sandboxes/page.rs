//! The list: filter, table, pages.

use leptos::{ev, prelude::*};
use leptos_meta::Title;
use leptos_router::hooks::{use_navigate, use_query_map};
use osb_protocol::lifecycle::SandboxState;

use super::{ListQuery, PAGE_ROWS, Rows, api, row::Row};
use crate::{
    live::Live,
    ui::{Icon, LoadError},
    view::{SandboxList, offers_changes},
};

/// States offered by the filter: those that last.
const STATES: [SandboxState; 6] = [
    SandboxState::Running,
    SandboxState::Pending,
    SandboxState::Paused,
    SandboxState::Stopping,
    SandboxState::Failed,
    SandboxState::Terminated,
];

/// The live list of sandboxes.
#[component]
pub fn SandboxesPage() -> impl IntoView {
    let params = use_query_map();
    let query = Memo::new(move |_| ListQuery::from_url(|name| params.read().get(name)));
    let first = Resource::new_blocking(|| (), move |()| api::list(query.get_untracked()));
    view! {
        <Title text="Sandboxes" />
        <div class="page-head">
            <h1>"Sandboxes"</h1>
            {offers_changes()
                .then(|| {
                    view! {
                        <a class="button primary" href="/console/create">
                            <Icon name="plus" />
                            "Create"
                        </a>
                    }
                })}
        </div>
        <Filter query />
        <Transition fallback=Skeleton>
            {move || Suspend::new(async move {
                match first.await {
                    Ok(list) => view! { <Table list query /> }.into_any(),
                    Err(error) => view! { <LoadError error again=move |()| first.refetch() /> }.into_any(),
                }
            })}
        </Transition>
    }
    .into_any()
}

/// Text and state. A plain GET form: without script, Enter or the button applies it.
#[component]
fn Filter(query: Memo<ListQuery>) -> impl IntoView {
    let navigate = use_navigate();
    let go = move |wanted: ListQuery| {
        let options = leptos_router::NavigateOptions {
            replace: true,
            scroll: false,
            ..Default::default()
        };
        navigate(&wanted.url(), options);
    };
    let go_q = go.clone();
    let on_text = move |event: ev::Event| {
        let q = event_target_value(&event);
        go_q(ListQuery {
            q,
            page: 1,
            ..query.get_untracked()
        });
    };
    let on_state = move |event: ev::Event| {
        let state = event_target_value(&event);
        go(ListQuery {
            state,
            page: 1,
            ..query.get_untracked()
        });
    };
    let options = STATES.into_iter().map(|state| {
        let name = state.to_string();
        let chosen = query.with_untracked(|query| query.state == name);
        view! { <option value=name.clone() selected=chosen>{name.clone()}</option> }
    });
    let text = query.with_untracked(|query| query.q.clone());
    view! {
        <form method="get" action="/console/sandboxes" role="search" class="filter"
            on:submit=|event| event.prevent_default()>
            <label class="search">
                <Icon name="search" />
                <span class="visually-hidden">"Filter by id, image, state or label"</span>
                <input
                    id="filter"
                    type="search"
                    name="q"
                    value=text
                    placeholder="Filter by id, image, state, label=value"
                    autocomplete="off"
                    spellcheck="false"
                    on:input=on_text
                />
                <kbd class="needs-script" aria-hidden="true">"/"</kbd>
            </label>
            <label class="select">
                <span class="visually-hidden">"State"</span>
                <select name="state" on:change=on_state>
                    <option value="">"Any state"</option>
                    {options.collect_view()}
                </select>
            </label>
            <button type="submit" class="button needs-no-script">"Apply"</button>
        </form>
    }
    .into_any()
}

#[component]
fn Table(list: SandboxList, query: Memo<ListQuery>) -> impl IntoView {
    let warning = list.warning.clone();
    let rows = Rows::new(list);
    let live = use_context::<Live>();
    Effect::new(move |_| {
        if let Some(live) = live {
            live.watch_list(
                move |list| rows.replace(list),
                move |change| rows.apply(change),
            );
        }
    });
    let shown = Memo::new(move |_| rows.select(&query.read()));
    let count = move || {
        let shown = shown.read();
        match (shown.matching, shown.total) {
            (all, total) if all == total => format!("{total} in total"),
            (some, total) => format!("{some} of {total}"),
        }
    };
    let warning = warning.map(|why| {
        view! {
            <p class="banner" data-tone="bad" role="status">
                <Icon name="triangle-alert" />
                {why}
            </p>
        }
    });
    view! {
        {warning}
        <Show when=move || shown.read().matching != 0 fallback=move || view! { <Empty query total=Signal::derive(move || shown.read().total) /> }>
            <table class="list">
                <caption class="visually-hidden">"Sandboxes, newest first"</caption>
                <thead>
                    <tr>
                        <th scope="col">"Sandbox"</th>
                        <th scope="col">"State"</th>
                        <th scope="col">"Image"</th>
                        <th scope="col">"Expires in"</th>
                        <th scope="col" class="optional">"Age"</th>
                        <th scope="col" class="optional">"Labels"</th>
                        <th scope="col"><span class="visually-hidden">"Actions"</span></th>
                    </tr>
                </thead>
                <tbody>
                    <For
                        each=move || shown.read().rows.clone()
                        key=|(id, _)| id.clone()
                        let((id, row))
                    >
                        <Row id row />
                    </For>
                </tbody>
            </table>
            <nav class="pager" aria-label="Pages">
                <p class="fine num" aria-live="polite">{count}</p>
                <PageLinks query matching=Signal::derive(move || shown.read().matching) />
            </nav>
        </Show>
    }
    .into_any()
}

#[component]
fn PageLinks(query: Memo<ListQuery>, matching: Signal<usize>) -> impl IntoView {
    let link = move |step: isize, label: &'static str| {
        move || {
            let here = query.get();
            let last = matching.get().div_ceil(PAGE_ROWS);
            let page = here.page.saturating_add_signed(step);
            let to = ListQuery { page, ..here };
            ((1..=last).contains(&page))
                .then(|| view! { <a class="button" href=to.url()>{label}</a> })
        }
    };
    view! {
        {link(-1, "Newer")}
        {link(1, "Older")}
    }
    .into_any()
}

/// The empty list: there are no sandboxes, or none match the filter.
#[component]
fn Empty(query: Memo<ListQuery>, total: Signal<usize>) -> impl IntoView {
    let filtered = move || query.read().filters() && total.get() > 0;
    view! {
        <section class="empty">
            <Icon name="box" />
            <h2>{move || if filtered() { "No matches" } else { "No sandboxes yet" }}</h2>
            <p>
                {move || match filtered() {
                    true => "No sandbox has all these words in its id, image, state or labels.",
                    false => {
                        "A sandbox is a container with a daemon that runs commands, moves files and opens terminals. The first one takes seconds."
                    }
                }}
            </p>
            {move || match filtered() {
                true => view! { <a class="button" href="/console/sandboxes">"Clear the filter"</a> },
                false => view! { <a class="button" href="/console/create">"Create a sandbox"</a> },
            }}
        </section>
    }
    .into_any()
}

/// A skeleton of the list while it loads.
#[component]
fn Skeleton() -> impl IntoView {
    let line = |_| view! { <div class="skeleton-row"></div> };
    view! { <div class="skeleton" aria-busy="true" aria-label="Loading">{(0..6).map(line).collect_view()}</div> }
}
