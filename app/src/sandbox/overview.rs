//! The overview tab: state, resource use, addresses, identity.

use leptos::prelude::*;
use osb_protocol::{Feature, FeatureSet, SandboxId, WireTime, lifecycle::SandboxState};

use super::{
    labels::OwnLabels,
    ports::Ports,
    stages::{StageBar, total},
};
use crate::{
    lazy::{Part, part},
    metrics::UsageSummary,
    quote::shell_line,
    tab::Current,
    ui::{Age, AtMinute, CodeBlock, CopyButton, Icon, When},
    view::{Ended, Outcome, SandboxDetail, ServerInfo, is_alive},
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
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    view! {
        <State current />
        <UsageSummary id=id.clone() />
        <div class="cards">
            <section class="card" aria-labelledby="ports-title">
                <h2 id="ports-title">"Endpoints"</h2>
                <Ports id=id.clone() current />
            </section>
            <section class="card" aria-labelledby="about-title">
                <h2 id="about-title">"About"</h2>
                <About current />
            </section>
        </div>
        <details class="card">
            <summary><h2>"Specification"</h2></summary>
            <CodeBlock code=Signal::derive(move || specification(&current.read())) what="the specification" />
        </details>
        <details class="card">
            <summary><h2>"As API calls"</h2></summary>
            <CodeBlock code=calls(&id, features) what="the calls" />
        </details>
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
    let whole = move || {
        view! {
            <section class="card" aria-labelledby="state-title">
                <h2 id="state-title">"State"</h2>
                <Reason current />
                <StageBar current />
                <LastOutput current />
            </section>
        }
    };
    view! {
        <Show when=move || runs.get() fallback=whole>
            {line()}
        </Show>
    }
    .into_any()
}

/// Since when the state has lasted.
#[component]
fn Since(at: Signal<Option<WireTime>>) -> impl IntoView {
    move || {
        let at = at.get()?;
        Some(view! { " since " <AtMinute at /> " (" <Age at /> ")" })
    }
}

/// The reason and message of the state, with advice.
#[component]
fn Reason(current: RwSignal<SandboxDetail>) -> impl IntoView {
    let status = move || current.read().sandbox.status.clone();
    let advice = move || advice(&current.read());
    let since = Signal::derive(move || status().last_transition_at);
    view! {
        <p class="reason">
            <span class="mono">{move || status().reason.unwrap_or_else(|| status().state.to_string())}</span>
            <Since at=since />
        </p>
        <p>{move || status().message}</p>
        <p class="help">{advice}</p>
    }
    .into_any()
}

/// The last output of a sandbox that failed.
#[component]
fn LastOutput(current: RwSignal<SandboxDetail>) -> impl IntoView {
    move || {
        let lines = current.read().log_tail.clone();
        (!lines.is_empty()).then(|| {
            view! {
                <h3>"Last output"</h3>
                <pre class="log" tabindex="0" role="region" aria-label="Last output">
                    <code>{lines.join("\n")}</code>
                </pre>
            }
        })
    }
}

/// A suggested fix for the present state.
fn advice(detail: &SandboxDetail) -> Option<&'static str> {
    if detail.ended.is_some() {
        return None;
    }
    let status = &detail.sandbox.status;
    let reason = status.reason.as_deref().unwrap_or_default();
    let message = status.message.as_deref().unwrap_or_default();
    match status.state {
        SandboxState::Failed if reason.contains("IMAGE") => Some(
            "Check the image name and whether this host may pull it: try docker pull with the same name.",
        ),
        SandboxState::Failed if reason == "REMOVAL_FAILED" => {
            Some("The server retries the removal until it succeeds.")
        }
        SandboxState::Failed if reason != "CONTAINER_EXITED_ERROR" => None,
        // The message says so.
        SandboxState::Failed if message.contains("lives only as long") => None,
        SandboxState::Failed if detail.log_tail.is_empty() => {
            Some("A sandbox lives as long as its entry point, which wrote no output.")
        }
        SandboxState::Failed => {
            Some("A sandbox lives as long as its entry point, whose last output is below.")
        }
        SandboxState::Paused => {
            Some("Its processes stand still and answer nothing. The time until it expires goes on.")
        }
        SandboxState::Terminated => Some(
            "The entry point exited. To keep a sandbox, use one that does not exit, such as tail -f /dev/null.",
        ),
        _ => None,
    }
}

/// What the sandbox is, and its life.
#[component]
fn About(current: RwSignal<SandboxDetail>) -> impl IntoView {
    let id = current.with_untracked(|detail| detail.sandbox.id.to_string());
    let sandbox = move || current.read().sandbox.clone();
    let origin = move || {
        let sandbox = sandbox();
        let image = sandbox.image.map(|image| image.uri);
        image
            .or(sandbox.snapshot_id)
            .unwrap_or_else(|| "none".to_owned())
    };
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
            <dt>"Image"</dt>
            <dd class="mono">{origin}</dd>
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

/// The page's actions as `curl` commands.
fn calls(id: &SandboxId, features: FeatureSet) -> String {
    let api = "\"$OPEN_SANDBOX_URL/v1/sandboxes";
    let key = "-H \"OPEN-SANDBOX-API-KEY: $OPEN_SANDBOX_API_KEY\"";
    let freeze = match features.contains(Feature::Pause) {
        true => format!(
            "# pause, and resume\ncurl -X POST {key} \\\n  {api}/{id}/pause\"\n\
             curl -X POST {key} \\\n  {api}/{id}/resume\"\n\n"
        ),
        false => String::new(),
    };
    format!(
        "# show\ncurl {key} \\\n  {api}/{id}\"\n\n\
         # renew\ncurl -X POST {key} -H 'Content-Type: application/json' \\\n  \
         -d \"{{\\\"expiresAt\\\": \\\"$(date -u -d '+30 min' +%FT%TZ)\\\"}}\" \\\n  \
         {api}/{id}/renew-expiration\"\n\n\
         {freeze}# where execd listens\ncurl {key} \\\n  {api}/{id}/endpoints/44772\"\n\n\
         # delete\ncurl -X DELETE {key} \\\n  {api}/{id}\""
    )
}
