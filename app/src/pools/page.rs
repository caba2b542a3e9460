//! The page of the list.

use leptos::prelude::*;
use serde_json::json;

use super::{add::AddForm, api, forms::PoolDraft, row::Row, shown::Shown, words::offers_pools};
use crate::{
    calls::{CurlBlock, PoolCall},
    pool::address,
    ui::{ColumnTitle, Icon, LoadError, NotOffered, PageTitle, TableHead},
    view::PoolRow,
};

/// Titles of the columns.
const TITLES: &[ColumnTitle] = &[
    ColumnTitle::new("Pool").class("c-name"),
    ColumnTitle::new("State").class("c-state"),
    ColumnTitle::new("Image").class("c-image"),
    ColumnTitle::new("Ready").class("c-number"),
    ColumnTitle::new("Starting").class("c-number"),
    ColumnTitle::new("Claimed").class("c-number"),
    ColumnTitle::new("Draining").class("c-number"),
    ColumnTitle::new("Buffer").class("c-range"),
    ColumnTitle::new("Total").class("c-range"),
    ColumnTitle::new("Age").class("c-age"),
];

/// What a pool is for.
const WHY: &str = "A pool keeps sandboxes started before they are needed, so that a create gets one at once. Name it in a create as extensions.poolRef.";

/// The list of pools.
#[component]
pub fn PoolsPage() -> impl IntoView {
    if !offers_pools() {
        let text = "The runtime of this server has no pools.";
        return view! { <NotOffered title="Pools" icon="layers" text /> }.into_any();
    }
    let draft = SharedValue::new(use_context::<PoolDraft>).into_inner();
    let list = Resource::new_blocking(|| (), |()| api::list());
    let refresh = move |event: leptos::ev::MouseEvent| {
        event.prevent_default();
        list.refetch();
    };
    view! {
        <PageTitle text="Pools" />
        <div class="page-head">
            <h1>"Pools"</h1>
            <a class="button" rel="external" href="/console/pools" on:click=refresh>
                <Icon name="refresh-cw" />
                "Refresh"
            </a>
        </div>
        <AddForm draft />
        <Transition fallback=|| {
            view! {
                <div class="skeleton" aria-busy="true">
                    <div class="skeleton-row"></div>
                    <div class="skeleton-row"></div>
                </div>
            }
        }>
            {move || Suspend::new(async move {
                match list.await {
                    Ok(list) => view! { <Loaded list /> }.into_any(),
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
fn Loaded(list: Vec<PoolRow>) -> impl IntoView {
    let shown = Shown::new(list);
    shown.follow();
    let is_empty = Memo::new(move |_| shown.list.read().is_empty());
    view! {
        <Show when=move || !is_empty.get() fallback=|| view! { <Empty /> }>
            <Failures shown />
            <table class="list pools">
                <caption class="visually-hidden">"Pools, by name"</caption>
                <TableHead of=TITLES />
                <tbody>
                    <For
                        each=move || shown.names()
                        key=Clone::clone
                        children=move |name| view! { <Row name shown /> }
                    />
                </tbody>
            </table>
        </Show>
    }
    .into_any()
}

/// Why pools are not filled.
#[component]
fn Failures(shown: Shown) -> impl IntoView {
    let failing = Memo::new(move |_| {
        let list = shown.list.read();
        let failing = list.iter().filter(|row| row.is_failing);
        failing
            .map(|row| (row.name.clone(), row.why().to_owned()))
            .collect::<Vec<_>>()
    });
    let banner = |(name, why): (String, String)| {
        view! {
            <p class="banner" data-tone="bad">
                <Icon name="triangle-alert" />
                <span>
                    <a class="mono" href=address(&name)>{name.clone()}</a>
                    ": "
                    {why}
                </span>
            </p>
        }
    };
    view! {
        <div class="pool-failures" role="status">
            {move || failing.get().into_iter().map(banner).collect_view()}
        </div>
    }
    .into_any()
}

/// There are no pools.
#[component]
fn Empty() -> impl IntoView {
    let call = PoolCall::Add(json!({
        "name": "python",
        "template": { "spec": { "containers": [{
            "image": "python:3.12",
            "resources": { "limits": { "cpu": "1", "memory": "512Mi" } },
        }] } },
        "capacitySpec": { "bufferMin": 1, "bufferMax": 2, "poolMin": 0, "poolMax": 10 },
    }));
    let what = call.title();
    view! {
        <section class="empty">
            <Icon name="layers" />
            <h2>"No pools yet"</h2>
            <p>{WHY}</p>
            <p>"Add one above, or with a call of the API:"</p>
            <div class="pool-example">
                <CurlBlock what code=move |target| call.code(&target, "") />
            </div>
        </section>
    }
    .into_any()
}
