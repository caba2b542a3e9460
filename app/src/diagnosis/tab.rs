//! The view of the diagnostics tab.

use leptos::prelude::*;
use osb_protocol::{SandboxId, WireTime};

use super::{
    HealthCheck, api,
    health::{self, Health},
    json::JsonTree,
};
use crate::{
    browser,
    condition::Condition,
    tab::Current,
    ui::{CopyButton, Icon, LoadError},
    view::{Diagnosis, DiagnosisEvent},
};

/// Why the sandbox is as it is, checks, and its events and settings as they are when the tab is opened
/// or the checks run.
#[component]
pub fn DiagnosisTab() -> impl IntoView {
    let Some(Current(current)) = use_context() else {
        return ().into_any();
    };
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let asked = id.clone();
    let first = Resource::new_blocking(|| (), move |()| api::read_diagnosis(asked.clone()));
    let results = RwSignal::new(Vec::new());
    let again = Callback::new(move |()| first.refetch());
    view! {
        <Condition current />
        <div class="diagnosis">
            <Health id=id.clone() results again />
        </div>
        <Transition fallback=|| view! { <div class="skeleton" aria-busy="true"><div class="skeleton-row"></div></div> }>
            {move || {
                let id = id.clone();
                Suspend::new(async move {
                    match first.await {
                        Ok(Ok(diagnosis)) => view! { <Report id diagnosis results /> }.into_any(),
                        Ok(Err(why)) => view! { <Nothing why /> }.into_any(),
                        Err(error) => view! { <LoadError error again /> }.into_any(),
                    }
                })
            }}
        </Transition>
    }
    .into_any()
}

#[component]
fn Nothing(why: String) -> impl IntoView {
    let current = use_context::<Current>();
    let why = move || {
        let lost = "The engine knows nothing of it any more.";
        let ended = current.and_then(|current| current.of_ended(lost));
        ended.unwrap_or_else(|| why.clone())
    };
    view! {
        <section class="empty">
            <Icon name="stethoscope" />
            <h2>"No diagnostics"</h2>
            <p>{why}</p>
        </section>
    }
    .into_any()
}

#[component]
fn Report(
    id: SandboxId,
    diagnosis: Diagnosis,
    results: RwSignal<Vec<HealthCheck>>,
) -> impl IntoView {
    let known = text(&id, &diagnosis);
    let report = Signal::derive(move || match results.read().as_slice() {
        [] => known.clone(),
        checks => format!("{known}\nHealth checks\n\n{}", health::text(checks)),
    });
    let raw = serde_json::to_string_pretty(&diagnosis.raw).unwrap_or_default();
    // The server's text is in UTC; hydration finds the same.
    let offset_minutes = RwSignal::new(0);
    Effect::new(move |_| offset_minutes.set(browser::minutes_east_of_utc()));
    let is_empty = diagnosis.events.is_empty();
    let rows = diagnosis.events.into_iter().map(|event| {
        let at = event.at;
        view! {
            <li>
                {at.map(|at| view! { <Time at offset_minutes /> })}
                <span class="event-name">{event.name}</span>
                <span class="event-text">{event.text}</span>
            </li>
        }
    });
    view! {
        <div class="diagnosis">
            <div class="choices">
                <a
                    class="button"
                    rel="external"
                    download
                    href=format!("/console/sandboxes/{id}/diagnostics/download")
                >
                    <Icon name="download" />
                    "Download with log"
                </a>
                <span class="copy-report needs-script">
                    <CopyButton text=report what="the report" />
                    "Copy report"
                </span>
            </div>
            <section aria-labelledby="events-title">
                <h2 id="events-title">"What happened"</h2>
                {is_empty.then(|| view! { <p class="help">"Nothing is known of it."</p> })}
                <ol class="events">{rows.collect_view()}</ol>
            </section>
            <section aria-labelledby="settings-title">
                <h2 id="settings-title">"State and settings"</h2>
                <p class="fine">"Without tokens and without values of variables."</p>
                <pre class="log" tabindex="0" role="region" aria-label="What the runtime reports">
                    {diagnosis.inspection}
                </pre>
            </section>
            <section aria-labelledby="raw-title">
                <div class="card-head">
                    <h2 id="raw-title">"Raw data"</h2>
                    <span class="copy-report needs-script">
                        <CopyButton text=raw what="the raw data" />
                        "Copy JSON"
                    </span>
                </div>
                <JsonTree value=diagnosis.raw />
            </section>
        </div>
    }
    .into_any()
}

#[component]
fn Time(at: WireTime, offset_minutes: RwSignal<i64>) -> impl IntoView {
    let exact = at.to_string();
    view! {
        <time class="num" datetime=exact.clone() title=exact>
            {move || local(at, offset_minutes.get())}
        </time>
    }
    .into_any()
}

/// `2026-01-02 09:31:02.125` at this many minutes east of UTC.
fn local(at: WireTime, offset_minutes: i64) -> String {
    let shifted = at.unix_us() + offset_minutes * 60_000_000;
    match WireTime::from_unix_us(shifted) {
        Some(shifted) => {
            let text = shifted.to_string();
            let (date, time) = text.split_at(text.find('T').unwrap_or(text.len()));
            let time: String = time.chars().skip(1).take_while(|c| *c != 'Z').collect();
            let millis = shifted.unix_ms().rem_euclid(1_000);
            format!(
                "{date} {}.{millis:03}",
                time.split('.').next().unwrap_or(&time)
            )
        }
        None => at.to_string(),
    }
}

/// The report as text, for a message to a colleague.
fn text(id: &SandboxId, diagnosis: &Diagnosis) -> String {
    let mut text = format!("Sandbox {id}\n\n");
    for DiagnosisEvent {
        at,
        name,
        text: what,
    } in &diagnosis.events
    {
        let at = at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        text.push_str(&format!("{at}  {name}  {what}\n"));
    }
    text.push('\n');
    text.push_str(&diagnosis.inspection);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_local_with_milliseconds() {
        let at = WireTime::from_unix_us(1_700_000_000_125_000).unwrap();
        assert_eq!(local(at, 0), "2023-11-14 22:13:20.125");
        assert_eq!(local(at, 120), "2023-11-15 00:13:20.125");
        let whole = WireTime::from_unix_us(1_700_000_000_000_000).unwrap();
        assert_eq!(local(whole, -330), "2023-11-14 16:43:20.000");
    }

    #[test]
    fn a_report_has_every_event_and_the_settings() {
        let at = WireTime::from_unix_us(1_700_000_000_000_000);
        let event = |at, name: &str| DiagnosisEvent {
            at,
            name: name.to_owned(),
            text: "why".to_owned(),
        };
        let diagnosis = Diagnosis {
            events: vec![event(at, "Started"), event(None, "Restarted")],
            inspection: "State: Running\n".to_owned(),
            raw: serde_json::Value::Null,
        };
        let text = text(&SandboxId::from("a"), &diagnosis);
        assert!(text.starts_with("Sandbox a\n\n2023-11-14T"), "{text}");
        assert!(
            text.contains("\n-  Restarted  why\n\nState: Running"),
            "{text}"
        );
    }
}
