//! The overview tab: identity, state, lifetime, addresses, resources.

use leptos::prelude::*;
use osb_protocol::{Feature, FeatureSet, SandboxId, lifecycle::SandboxState};

use super::{
    actions::{DeleteForm, PauseForm, RenewForm, can_freeze},
    ports::Ports,
    stages::StageBar,
};
use crate::{
    metrics::UsageSummary,
    tab::Current,
    ui::{Age, CodeBlock, CopyButton, Countdown, Labels, When},
    view::{Ended, Outcome, SandboxDetail, ServerInfo, is_alive, title},
};

/// The overview tab.
#[component]
pub fn OverviewTab() -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let alive = Memo::new(move |_| is_alive(&current.read().sandbox.status.state));
    let state = Signal::derive(move || current.read().sandbox.status.state.clone());
    let freezable = Memo::new(move |_| can_freeze(&state.read()));
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    let for_renewal = id.clone();
    let for_pause = id.clone();
    let for_ports = id.clone();
    let for_usage = id.clone();
    let name = Signal::derive(move || title(&current.read().sandbox).to_owned());
    view! {
        <section class="card" aria-labelledby="state-title">
            <h2 id="state-title">"State"</h2>
            <StageBar current />
            <Reason current />
            <Show when=move || freezable.get()>
                <PauseForm id=for_pause.clone() state />
            </Show>
        </section>
        <div class="cards">
            <UsageSummary id=for_usage />
            <section class="card" aria-labelledby="identity-title">
                <h2 id="identity-title">"Identity"</h2>
                <Identity current />
            </section>
            <section class="card" aria-labelledby="lifetime-title">
                <h2 id="lifetime-title">"Lifetime"</h2>
                <Lifetime current />
                <Show when=move || alive.get()>
                    <RenewForm id=for_renewal.clone() />
                </Show>
            </section>
            <section class="card" aria-labelledby="ports-title">
                <h2 id="ports-title">"Endpoints"</h2>
                <Ports id=for_ports current />
            </section>
            <section class="card" aria-labelledby="resources-title">
                <h2 id="resources-title">"Resources and labels"</h2>
                <Resources current />
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
        <Show when=move || current.read().ended.is_none()>
            <section class="card danger-zone" aria-labelledby="delete-title">
                <h2 id="delete-title">"Delete"</h2>
                <p>"Stops every process and removes the sandbox with its files."</p>
                <DeleteForm id=id.clone() name />
            </section>
        </Show>
    }
    .into_any()
}

/// The reason and message of the state, with advice and the last output.
#[component]
fn Reason(current: RwSignal<SandboxDetail>) -> impl IntoView {
    let status = move || current.read().sandbox.status.clone();
    let advice = move || advice(&current.read());
    let log = move || {
        let lines = current.read().log_tail.clone();
        (!lines.is_empty()).then(|| {
            view! {
                <h3>"Last output"</h3>
                <pre class="log" tabindex="0" role="region" aria-label="Last output">
                    <code>{lines.join("\n")}</code>
                </pre>
            }
        })
    };
    let since = move || {
        let at = status().last_transition_at;
        at.map(|at| view! { " since " <When at /> })
    };
    view! {
        <p class="reason">
            <span class="mono">{move || status().reason.unwrap_or_else(|| status().state.to_string())}</span>
            {since}
        </p>
        <p>{move || status().message}</p>
        <p class="help">{advice}</p>
        {log}
    }
    .into_any()
}

/// A suggested fix for the present state.
fn advice(detail: &SandboxDetail) -> Option<&'static str> {
    if detail.ended.is_some() {
        return None;
    }
    let status = &detail.sandbox.status;
    let reason = status.reason.as_deref().unwrap_or_default();
    match status.state {
        SandboxState::Failed if reason.contains("IMAGE") => Some(
            "Check the image name and whether this host may pull it: try docker pull with the same name.",
        ),
        SandboxState::Failed if reason == "REMOVAL_FAILED" => {
            Some("The server retries the removal until it succeeds.")
        }
        SandboxState::Failed if reason != "CONTAINER_EXITED_ERROR" => None,
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

#[component]
fn Identity(current: RwSignal<SandboxDetail>) -> impl IntoView {
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
    view! {
        <dl class="facts">
            <dt>"Id"</dt>
            <dd class="mono">{id.clone()} <CopyButton text=id what="the id" /></dd>
            <dt>"Image"</dt>
            <dd class="mono">{origin}</dd>
            <dt>"Entry point"</dt>
            <dd class="mono">{move || sandbox().entrypoint.join(" ")}</dd>
            <dt>"Platform"</dt>
            <dd>{move || platform().unwrap_or_else(|| "of the host".to_owned())}</dd>
        </dl>
    }
    .into_any()
}

#[component]
fn Lifetime(current: RwSignal<SandboxDetail>) -> impl IntoView {
    let created = Signal::derive(move || current.read().sandbox.created_at);
    let expires = Signal::derive(move || current.read().sandbox.expires_at);
    let ended = Memo::new(move |_| current.read().ended);
    view! {
        <dl class="facts">
            <dt>"Created"</dt>
            <dd><When at=created /> " (" <Age at=created /> " ago)"</dd>
            {move || match ended.get() {
                Some(Ended { outcome, at }) => {
                    view! {
                        <dt>{if outcome == Outcome::Expired { "Expired" } else { "Ended" }}</dt>
                        <dd><When at /> " (" <Age at /> " ago)"</dd>
                    }
                    .into_any()
                }
                None => {
                    view! {
                        <dt>"Expires"</dt>
                        <dd>{move || match expires.get() {
                            Some(at) => view! { <When at /> }.into_any(),
                            None => "never: it stays until it is deleted".into_any(),
                        }}</dd>
                        <dt>"Left"</dt>
                        <dd><Countdown until=expires /></dd>
                    }
                    .into_any()
                }
            }}
        </dl>
    }
    .into_any()
}

#[component]
fn Resources(current: RwSignal<SandboxDetail>) -> impl IntoView {
    let limits = move || {
        let limits = current.read().resources.clone();
        let fact = |(name, amount)| view! { <dt>{name}</dt> <dd class="num">{amount}</dd> };
        limits.into_iter().map(fact).collect_view()
    };
    let labels = Signal::derive(move || current.read().sandbox.metadata.clone());
    view! {
        <dl class="facts">{limits}</dl>
        <Show
            when=move || !labels.read().is_empty()
            fallback=|| view! { <p class="help">"No labels."</p> }
        >
            <Labels of=labels />
        </Show>
    }
    .into_any()
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
