//! The page of one pool.

use leptos::prelude::*;
use leptos_router::hooks::use_params_map;

use super::{api, badge::PoolBadge, calls::Calls, capacity::ResizeForm, delete::DeleteForm};
use crate::{
    error::ConsoleError,
    quote::shell_line,
    reread::{self, RELOAD},
    ui::{Age, Icon, LoadError, NotShown, PageTitle, When, duration},
    view::{PageStatus, PoolDetail, PoolState},
};

/// The list.
const LIST: (&str, &str) = ("/console/pools", "All pools");

/// Loads a pool and shows it.
#[component]
pub fn PoolPage() -> impl IntoView {
    let params = use_params_map();
    let name = Memo::new(move |_| params.read().get("id").unwrap_or_default());
    let first = Resource::new_blocking(move || name.get(), api::read);
    view! {
        <Transition fallback=|| {
            view! {
                <div class="skeleton" aria-busy="true">
                    <div class="skeleton-row"></div>
                </div>
            }
        }>
            {move || Suspend::new(async move {
                match first.await {
                    Ok(Some(detail)) => view! { <Loaded detail /> }.into_any(),
                    Ok(None) => view! { <Missing /> }.into_any(),
                    Err(error) => {
                        view! { <Unavailable error again=move |()| first.refetch() /> }.into_any()
                    }
                }
            })}
        </Transition>
    }
    .into_any()
}

#[component]
fn Loaded(detail: PoolDetail) -> impl IntoView {
    let name = detail.row.name.clone();
    let fills = detail.row.state() == PoolState::Filling;
    let current = RwSignal::new(detail);
    let is_gone = RwSignal::new(false);
    let asked = name.clone();
    let read_again = Callback::new(move |()| {
        reread::read_one(current, is_gone, api::read(asked.clone()));
    });
    let shown = Memo::new(move |_| (!is_gone.get()).then(|| current.get()));
    reread::follow(shown, Option::is_some, read_again);
    let state = Signal::derive(move || current.read().row.state());
    let capacity = Memo::new(move |_| current.read().row.capacity);
    let claimed = Memo::new(move |_| current.read().row.numbers.claimed);
    view! {
        <PageTitle text=name.clone() />
        {fills.then(|| view! { <noscript inner_html=RELOAD></noscript> })}
        <div class="page-head sandbox-head">
            <h1 class="mono">{name.clone()}</h1>
            <PoolBadge state />
            <div class="head-actions" role="group" aria-label="Actions">
                <div data-act="delete">
                    <DeleteForm name=name.clone() claimed read_again />
                </div>
            </div>
        </div>
        <Show when=move || is_gone.get()>
            <p class="banner" data-tone="quiet" role="status">
                <Icon name="info" />
                "This pool is deleted. Its last known state is shown below."
            </p>
        </Show>
        <Failure current />
        <div class="cards">
            <section class="card" aria-labelledby="numbers-title">
                <h2 id="numbers-title">"Sandboxes"</h2>
                <Numbers current />
            </section>
            <section class="card" aria-labelledby="template-title">
                <h2 id="template-title">"Template"</h2>
                <Template current />
            </section>
        </div>
        <section class="card" aria-labelledby="capacity-title">
            <h2 id="capacity-title">"Capacity"</h2>
            <ResizeForm name=name.clone() capacity read_again />
        </section>
        <Calls name capacity />
    }
    .into_any()
}

/// Why it is not filled.
#[component]
fn Failure(current: RwSignal<PoolDetail>) -> impl IntoView {
    let failure = Memo::new(move |_| {
        let detail = current.read();
        detail.row.failure.clone().filter(|_| detail.row.is_failing)
    });
    let banner = move || {
        failure.get().map(|failure| {
            view! {
                <p class="banner" data-tone="bad" role="status">
                    <Icon name="triangle-alert" />
                    <span>
                        {failure.reason} " (" <When at=failure.at />
                        "). The server tries again, at least once a minute."
                    </span>
                </p>
            }
        })
    };
    banner.into_any()
}

/// How many sandboxes it has.
#[component]
fn Numbers(current: RwSignal<PoolDetail>) -> impl IntoView {
    let numbers = move || current.read().row.numbers;
    let in_all = move || {
        let (numbers, most) = (numbers(), current.read().row.capacity.pool_max);
        let all = numbers.ready + numbers.warming + numbers.claimed;
        format!("{all} of at most {most}")
    };
    let why = move || current.read().row.state().sentence();
    let last_failure = move || {
        let row = current.read().row.clone();
        let failure = row.failure.filter(|_| !row.is_failing)?;
        Some(view! {
            <dt>"Last failure"</dt>
            <dd>{failure.reason} " (" <When at=failure.at /> ")"</dd>
        })
    };
    view! {
        <p>{why}</p>
        <dl class="facts">
            <dt>"Ready"</dt>
            <dd class="num">{move || numbers().ready}</dd>
            <dt>"Starting"</dt>
            <dd class="num">{move || numbers().warming}</dd>
            <dt>"Claimed"</dt>
            <dd class="num">{move || numbers().claimed}</dd>
            <dt>"Draining"</dt>
            <dd class="num">{move || numbers().draining}</dd>
            <dt>"Total"</dt>
            <dd class="num">{in_all}</dd>
            {last_failure}
        </dl>
    }
    .into_any()
}

/// What its sandboxes are made from.
#[component]
fn Template(current: RwSignal<PoolDetail>) -> impl IntoView {
    let image = move || current.read().row.image.clone();
    let entrypoint = move || shell_line(&current.read().entrypoint);
    let limits = move || {
        let limits = current.read().resources.clone();
        let fact = |(name, amount)| {
            view! {
                <dt>"Limit of " {name}</dt>
                <dd class="num">{amount}</dd>
            }
        };
        limits.into_iter().map(fact).collect_view()
    };
    let variables = move || match current.read().variables.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    let revision = move || current.read().revision.clone();
    let wait = move || {
        let seconds = i64::try_from(current.read().wait_seconds).unwrap_or(i64::MAX);
        format!("at most {}", duration(seconds))
    };
    let created = Signal::derive(move || current.read().row.created_at);
    let changed = Signal::derive(move || current.read().changed_at);
    view! {
        <dl class="facts">
            <dt>"Image"</dt>
            <dd class="mono">{image}</dd>
            <dt>"Entry point"</dt>
            <dd class="mono">{entrypoint}</dd>
            {limits}
            <dt>"Variables"</dt>
            <dd class="mono">{variables}</dd>
            <dt>"Revision"</dt>
            <dd class="mono">{revision}</dd>
            <dt>"A create waits"</dt>
            <dd>{wait}</dd>
            <dt>"Added"</dt>
            <dd><When at=created /> " (" <Age at=created /> " ago)"</dd>
            <dt>"Changed"</dt>
            <dd><When at=changed /> " (" <Age at=changed /> " ago)"</dd>
        </dl>
        <p class="help">
            "Of variables only the names are shown. Another template, sent with PUT /v1/pools/{name}, replaces the sandboxes that wait; claimed ones stay as they are."
        </p>
    }
    .into_any()
}

/// There is no such pool.
#[component]
fn Missing() -> impl IntoView {
    PageStatus::set(404);
    view! {
        <NotShown title="Pool" icon="layers" heading="No such pool" list=LIST>
            <p>"It was deleted, belongs to another tenant, or there never was one of this name."</p>
        </NotShown>
    }
    .into_any()
}

/// It could not be read.
#[component]
fn Unavailable(error: ConsoleError, #[prop(into)] again: Callback<()>) -> impl IntoView {
    view! {
        <NotShown title="Pool" icon="triangle-alert" heading="Unavailable" list=LIST>
            <LoadError error again />
        </NotShown>
    }
    .into_any()
}
