//! The overview tab: state, resource use, addresses, identity.

use leptos::prelude::*;
use osb_protocol::lifecycle::SandboxState;

use super::{
    calls::Calls, labels::OwnLabels, latest::LatestEvents, ports::Ports, snapshots::OwnSnapshots,
};
use crate::{
    condition::{Condition, Reason, Since, StageBar, total},
    lazy::{Part, part},
    metrics::UsageSummary,
    pool,
    quote::shell_line,
    snapshot::{self, offers_snapshots},
    tab::Current,
    template,
    ui::{Age, CodeBlock, CopyButton, Icon, When},
    view::{Ended, Outcome, SandboxDetail, is_alive},
};

/// The tab, loaded when it is first shown.
pub(crate) const PART: Part = part!(sandbox, OverviewTab);

/// The overview tab.
#[component]
pub fn OverviewTab() -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    view! {
        <State current />
        <UsageSummary id=id.clone() />
        <div class="cards">
            <section class="card" aria-labelledby="ports-title">
                <h2 id="ports-title">"Endpoints"</h2>
                <Ports id current />
            </section>
            <section class="card" aria-labelledby="about-title">
                <h2 id="about-title">"About"</h2>
                <About current />
            </section>
        </div>
        {offers_snapshots().then(|| view! { <OwnSnapshots current /> })}
        <LatestEvents current />
        <details class="card">
            <summary><h2>"Specification"</h2></summary>
            <CodeBlock code=Signal::derive(move || specification(&current.read())) what="the specification" />
        </details>
        <Calls current />
    }
    .into_any()
}

/// The state: one line while the sandbox runs, with the stages on demand; otherwise what happened.
#[component]
fn State(current: RwSignal<SandboxDetail>) -> impl IntoView {
    let runs = Memo::new(move |_| current.read().sandbox.status.state == SandboxState::Running);
    let since = Signal::derive(move || current.read().sandbox.status.last_transition_at);
    let line = move || {
        let total = move || current.with(|detail| total(&detail.stages));
        view! {
            <details class="card state-line">
                <summary>
                    <h2 id="state-title">"State"</h2>
                    <span>"Running" <Since at=since /></span>
                    <span class="num state-total">{total}</span>
                    <span class="state-more">"Stages" <Icon name="chevron-right" /></span>
                </summary>
                <StageBar current />
                <Reason current />
            </details>
        }
    };
    let whole = move || view! { <Condition current /> };
    view! {
        <Show when=move || runs.get() fallback=whole>
            {line()}
        </Show>
    }
    .into_any()
}

/// What the sandbox is, and its life.
#[component]
fn About(current: RwSignal<SandboxDetail>) -> impl IntoView {
    let id = current.with_untracked(|detail| detail.sandbox.id.to_string());
    let sandbox = move || current.read().sandbox.clone();
    let platform = move || {
        sandbox()
            .platform
            .map(|it| format!("{}/{}", it.os, it.arch))
    };
    let entrypoint = Signal::derive(move || shell_line(&current.read().sandbox.entrypoint));
    let created = Signal::derive(move || current.read().sandbox.created_at);
    view! {
        <dl class="facts">
            <dt>"Id"</dt>
            <dd class="mono">{id.clone()} <CopyButton text=id what="the id" /></dd>
            <Source current />
            <OwnPool current />
            <dt>"Entry point"</dt>
            <dd class="mono entrypoint">
                {move || entrypoint.get()} <CopyButton text=entrypoint what="the entry point" />
            </dd>
            <dt>"Platform"</dt>
            <dd>{move || platform().unwrap_or_else(|| "of the host".to_owned())}</dd>
            <dt>"Created"</dt>
            <dd><When at=created /> " (" <Age at=created /> " ago)"</dd>
            <End current />
            <Limits current />
            <OwnLabels current />
        </dl>
    }
    .into_any()
}

/// What the sandbox was created from, which never changes.
#[component]
fn Source(current: RwSignal<SandboxDetail>) -> impl IntoView {
    let detail = current.read_untracked();
    let sandbox = &detail.sandbox;
    if let Some(id) = &detail.template {
        let short = template::short(id).to_owned();
        return view! {
            <dt>"Template"</dt>
            <dd>
                <a class="mono" href=template::address(id) title=id.clone()>{short}</a>
            </dd>
        }
        .into_any();
    }
    if let (None, Some(id)) = (&sandbox.image, &sandbox.snapshot_id) {
        let short = snapshot::short(id).to_owned();
        return view! {
            <dt>"Snapshot"</dt>
            <dd>
                <a class="mono" href=snapshot::address(id) title=id.clone()>{short}</a>
            </dd>
        }
        .into_any();
    }
    let image = sandbox.image.as_ref().map(|image| image.uri.clone());
    view! {
        <dt>"Image"</dt>
        <dd class="mono">{image.unwrap_or_else(|| "none".to_owned())}</dd>
    }
    .into_any()
}

/// The pool that the sandbox came from, which never changes.
#[component]
fn OwnPool(current: RwSignal<SandboxDetail>) -> impl IntoView {
    let detail = current.read_untracked();
    let allocation = detail.sandbox.allocation.as_ref();
    let pool = allocation.map(|allocation| allocation.pool_ref.clone());
    pool.map(|name| {
        view! {
            <dt>"Pool"</dt>
            <dd>
                <a class="mono" href=pool::address(&name)>{name.clone()}</a>
            </dd>
        }
    })
    .into_any()
}

/// When the sandbox expires, or how it ended.
#[component]
fn End(current: RwSignal<SandboxDetail>) -> impl IntoView {
    let ended = Memo::new(move |_| current.read().ended);
    let expires = Memo::new(move |_| current.read().sandbox.expires_at);
    let alive = Memo::new(move |_| is_alive(&current.read().sandbox.status.state));
    move || match (ended.get(), expires.get()) {
        (Some(Ended { outcome, at }), _) => {
            let word = if outcome == Outcome::Expired {
                "Expired"
            } else {
                "Ended"
            };
            view! {
                <dt>{word}</dt>
                <dd><When at /> " (" <Age at /> " ago)"</dd>
            }
            .into_any()
        }
        (None, Some(at)) => {
            let word = if alive.get() { "Expires" } else { "Kept until" };
            view! {
                <dt>{word}</dt>
                <dd><When at /></dd>
            }
            .into_any()
        }
        (None, None) => view! {
            <dt>"Expires"</dt>
            <dd>"never: it stays until it is deleted"</dd>
        }
        .into_any(),
    }
}

/// The limits, as facts.
#[component]
fn Limits(current: RwSignal<SandboxDetail>) -> impl IntoView {
    move || {
        let limits = current.read().resources.clone();
        let fact = |(name, amount)| {
            view! {
                <dt>"Limit of " {name}</dt>
                <dd class="num">{amount}</dd>
            }
        };
        limits.into_iter().map(fact).collect_view()
    }
}

fn specification(detail: &SandboxDetail) -> String {
    serde_json::to_string_pretty(&detail.sandbox).unwrap_or_default()
}
