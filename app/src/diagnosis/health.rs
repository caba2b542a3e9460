//! Checks of a sandbox that run when a user wants them.

use leptos::{ev, prelude::*};
use leptos_router::hooks::use_location;
use osb_protocol::SandboxId;

use super::{CheckEnd, HealthCheck, api};
use crate::{
    query_string::use_query,
    tab::Current,
    ui::{Icon, LoadError, When},
};

/// A panel with a button that runs the checks, and their results. Without script it is a link to this
/// page with `?checks=now`.
#[component]
pub(super) fn Health(
    /// The sandbox.
    id: SandboxId,
    /// The last results, for the report.
    results: RwSignal<Vec<HealthCheck>>,
    /// Reads what the rest of the page shows.
    again: Callback<()>,
) -> impl IntoView {
    let current = use_context::<Current>();
    let why_not = move |why: String| {
        let lost = "There is nothing left to check.";
        let ended = current.and_then(|current| current.of_ended(lost));
        ended.unwrap_or(why)
    };
    let query = use_query();
    let at_once = query.with_untracked(|query| query.get("checks").is_some());
    let runs = RwSignal::new(u32::from(at_once));
    let answer = Resource::new_blocking(
        move || runs.get(),
        move |runs| {
            let id = id.clone();
            async move {
                match runs {
                    0 => None,
                    _ => Some(api::check_health(id).await),
                }
            }
        },
    );
    let here = use_location().pathname;
    let href = move || format!("{}?checks=now", here.get());
    let run = move |event: ev::MouseEvent| {
        event.prevent_default();
        runs.update(|runs| *runs += 1);
        again.run(());
    };
    let check_again = Callback::new(move |()| answer.refetch());
    Effect::new(move |_| {
        if let Some(Some(Ok(Ok(checks)))) = answer.get() {
            results.set(checks);
        }
    });
    view! {
        <section aria-labelledby="health-title">
            <div class="card-head">
                <h2 id="health-title">"Health checks"</h2>
                <a class="button" rel="external" href=href on:click=run>
                    <Icon name="activity" />
                    "Run checks now"
                </a>
            </div>
            <div role="status">
                <Transition fallback=|| view! { <p class="help">"Checking …"</p> }>
                    {move || Suspend::new(async move {
                        match answer.await {
                            None => {
                                view! {
                                    <p class="help">
                                        "They ask the engine, the container and execd of this sandbox, show how long each took, and read again what is below."
                                    </p>
                                }
                                    .into_any()
                            }
                            Some(Ok(Ok(checks))) => view! { <Results checks /> }.into_any(),
                            Some(Ok(Err(why))) => {
                                view! { <p class="help">{move || why_not(why.clone())}</p> }.into_any()
                            }
                            Some(Err(error)) => view! { <LoadError error again=check_again /> }.into_any(),
                        }
                    })}
                </Transition>
            </div>
        </section>
    }
    .into_any()
}

#[component]
fn Results(checks: Vec<HealthCheck>) -> impl IntoView {
    let row = |check: HealthCheck| {
        let (state, icon, word) = look(check.end);
        let at = check.at;
        view! {
            <li data-state=state>
                <Icon name=icon />
                <span class="event-name">{check.name}</span>
                <span class="check-end">{word}</span>
                <span class="event-text">{check.text}</span>
                <span class="num check-took">{check.took_ms.map(|ms| format!("{ms} ms"))}</span>
                <span class="num check-at">{at.map(|at| view! { <When at /> })}</span>
            </li>
        }
    };
    let rows = checks.into_iter().map(row);
    view! {
        <ul class="health-checks" aria-label="Results">
            {rows.collect_view()}
        </ul>
    }
    .into_any()
}

/// Class in style/diagnosis.css, icon and word.
fn look(end: CheckEnd) -> (&'static str, &'static str, &'static str) {
    match end {
        CheckEnd::Good => ("good", "circle-check", "good"),
        CheckEnd::Bad => ("bad", "circle-x", "failed"),
        CheckEnd::Skipped => ("skipped", "circle-dashed", "skipped"),
    }
}

/// The results as text, for the report.
pub(super) fn text(checks: &[HealthCheck]) -> String {
    let line = |check: &HealthCheck| {
        let (_, _, word) = look(check.end);
        let took = check.took_ms.map(|ms| format!(" ({ms} ms)"));
        let took = took.unwrap_or_default();
        let at = check.at.map(|at| at.to_string()).unwrap_or_default();
        format!("{at}  {}  {word}{took}: {}\n", check.name, check.text)
    };
    checks.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;

    #[test]
    fn a_report_has_each_check_with_time_and_result() {
        let check = |end, took_ms| HealthCheck {
            name: "execd".to_owned(),
            end,
            text: "it answers".to_owned(),
            took_ms,
            at: WireTime::from_unix_ms(0),
        };
        let text = text(&[
            check(CheckEnd::Good, Some(3)),
            check(CheckEnd::Skipped, None),
        ]);
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].ends_with("execd  good (3 ms): it answers"),
            "{text}"
        );
        assert!(lines[1].ends_with("execd  skipped: it answers"), "{text}");
    }
}
