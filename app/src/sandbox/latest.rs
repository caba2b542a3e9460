//! The latest events of a sandbox: what its record knows, and what the audit trail has of it.

use std::time::Duration;

use leptos::prelude::*;
use osb_protocol::{
    WireTime,
    audit::{AuditEntry, AuditOutcome},
    lifecycle::SandboxState,
};

use crate::{
    condition::total,
    events::read_events,
    tab::Tab,
    ui::{Age, LoadError, When},
    view::{Answer, EventsQuery, Outcome, SandboxDetail, reason_words},
};

/// Most events that are shown.
const SHOWN: usize = 10;

/// The trail is written a moment after the act.
const LAG: Duration = Duration::from_secs(2);

/// A call that waits until nothing has changed for [`LAG`]: an act changes several things in a row, and
/// the trail is read once for all of them.
#[derive(Clone, Copy)]
struct Rest {
    timer: StoredValue<Option<TimeoutHandle>>,
    then: Callback<()>,
}

impl Rest {
    /// Nothing has changed yet. What waits is dropped with its owner.
    fn new(then: Callback<()>) -> Self {
        let rest = Self {
            timer: StoredValue::new(None),
            then,
        };
        on_cleanup(move || rest.stop());
        rest
    }

    /// Something changed: the wait begins, or begins again.
    fn begin(self) {
        self.stop();
        let call = move || {
            let _ = self.then.try_run(());
        };
        self.timer
            .set_value(set_timeout_with_handle(call, LAG).ok());
    }

    fn stop(self) {
        let timer = self.timer.try_update_value(Option::take);
        if let Some(timer) = timer.flatten() {
            timer.clear();
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Happening {
    at: WireTime,
    what: String,
    /// More about it: who did it, or why.
    detail: String,
    /// The action of the audit trail that is the same event.
    action: &'static str,
    is_bad: bool,
}

/// A card with the latest events, newest first, and a way to all of them.
#[component]
pub(super) fn LatestEvents(
    /// The sandbox.
    current: RwSignal<SandboxDetail>,
) -> impl IntoView {
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let query = EventsQuery {
        sandbox: id.to_string(),
        ..EventsQuery::default()
    };
    let all = query.url();
    // What an act changes is here, so that a change means a new entry in the trail.
    let change = Memo::new(move |_| current.with(|it| (it.sandbox.clone(), it.ended)));
    let trail = Resource::new_blocking(
        move || change.get(),
        move |_| {
            let query = query.clone();
            async move { read_events(query).await.map(|view| view.answer) }
        },
    );
    let again = Callback::new(move |()| trail.refetch());
    let rest = Rest::new(again);
    Effect::new(move |before: Option<()>| {
        // A memo that is only tracked is not evaluated, so that it would not know of changes.
        change.with(|_| ());
        if before.is_some() {
            rest.begin();
        }
    });
    view! {
        <section class="card" aria-labelledby="latest-title">
            <div class="card-head">
                <h2 id="latest-title">"Latest events"</h2>
                <a href=Tab::Diagnostics.address(&id)>"Diagnostics"</a>
            </div>
            <Transition fallback=|| view! { <div class="skeleton-row"></div> }>
                {move || {
                    let all = all.clone();
                    Suspend::new(async move {
                        let (entries, note) = match trail.await {
                            Ok(Answer::Done(page)) => {
                                let link = view! { <p><a href=all>"All in Events & audit"</a></p> };
                                (page.items, link.into_any())
                            }
                            Ok(Answer::Refused(why)) => {
                                (Vec::new(), view! { <p class="fine">{why}</p> }.into_any())
                            }
                            Ok(Answer::Invalid(_)) => (Vec::new(), ().into_any()),
                            Err(error) => {
                                (Vec::new(), view! { <LoadError error again /> }.into_any())
                            }
                        };
                        let latest = move || current.with(|detail| latest(detail, &entries));
                        view! {
                            <ol class="latest">
                                {move || latest().into_iter().map(line).collect_view()}
                            </ol>
                            {note}
                        }
                    })
                }}
            </Transition>
        </section>
    }
    .into_any()
}

fn line(happening: Happening) -> AnyView {
    let at = happening.at;
    view! {
        <li data-bad=happening.is_bad.then_some("true")>
            <span class="latest-at"><When at /></span>
            <span class="latest-age num"><Age at /> " ago"</span>
            <span class="latest-what">{happening.what}</span>
            <span class="latest-detail">{happening.detail}</span>
        </li>
    }
    .into_any()
}

/// The latest events, newest first. One that the trail has is listed once.
fn latest(detail: &SandboxDetail, entries: &[AuditEntry]) -> Vec<Happening> {
    let has = |action: &str| {
        let mut done = entries
            .iter()
            .filter(|it| it.outcome == AuditOutcome::Succeeded);
        !action.is_empty() && done.any(|it| it.action == action)
    };
    let known = known(detail).into_iter().filter(|it| !has(it.action));
    let recorded = entries.iter().map(|entry| {
        let happening = recorded(entry);
        // A create is recorded once it was answered, when the sandbox may run already.
        match (entry.action.as_str(), entry.outcome) {
            ("sandbox.create", AuditOutcome::Succeeded) => Happening {
                at: detail.sandbox.created_at,
                ..happening
            },
            _ => happening,
        }
    });
    let mut all: Vec<_> = known.chain(recorded).collect();
    all.sort_by_key(|it| std::cmp::Reverse(it.at));
    all.truncate(SHOWN);
    all
}

/// What the record of a sandbox says of its life.
fn known(detail: &SandboxDetail) -> Vec<Happening> {
    let sandbox = &detail.sandbox;
    let happening = |at, what: &str, action| Happening {
        at,
        what: what.to_owned(),
        detail: String::new(),
        action,
        is_bad: false,
    };
    let mut all = vec![happening(sandbox.created_at, "Created", "sandbox.create")];
    let ready = detail.stages.iter().find(|stage| stage.name == "ready");
    if let Some(at) = ready.and_then(|stage| stage.at) {
        all.push(Happening {
            detail: total(&detail.stages).unwrap_or_default(),
            ..happening(at, "Started", "")
        });
    }
    let status = &sandbox.status;
    if let Some(at) = status.last_transition_at.filter(|_| detail.ended.is_none()) {
        let (what, action) = match status.state {
            SandboxState::Failed => ("Failed", ""),
            SandboxState::Terminated => ("Terminated", ""),
            SandboxState::Paused => ("Paused", "sandbox.pause"),
            SandboxState::Stopping => ("Deletion began", "sandbox.delete"),
            _ => ("", ""),
        };
        if !what.is_empty() {
            all.push(Happening {
                detail: reason_words(status).unwrap_or_default(),
                is_bad: status.state == SandboxState::Failed,
                ..happening(at, what, action)
            });
        }
    }
    if let Some(ended) = detail.ended {
        let action = match ended.outcome {
            Outcome::Deleted => "sandbox.delete",
            Outcome::Expired => "sandbox.expire",
            Outcome::Abandoned => "sandbox.abandon",
            Outcome::Failed | Outcome::Vanished => "",
        };
        let is_bad = !matches!(ended.outcome, Outcome::Deleted | Outcome::Expired);
        let reason = status.reason.clone().unwrap_or_default();
        all.push(Happening {
            detail: reason.to_lowercase().replace('_', " "),
            is_bad,
            ..happening(ended.at, ended.outcome.word(), action)
        });
    }
    all
}

/// An entry of the audit trail in words.
fn recorded(entry: &AuditEntry) -> Happening {
    let what = match entry.action.as_str() {
        "sandbox.create" => "Created",
        "sandbox.delete" => "Deleted",
        "sandbox.renew" => "Extended",
        "sandbox.pause" => "Paused",
        "sandbox.resume" => "Resumed",
        "sandbox.expire" => "Expired",
        "sandbox.abandon" => "Removed: its client had disconnected",
        "sandbox.enter" => "Used through the proxy",
        "metadata.patch" => "Labels changed",
        "terminal.open" => "Terminal opened",
        "terminal.end" => "Shell ended",
        "command.run" => "Command run",
        "snapshot.create" => "Snapshot taken",
        other => other,
    };
    let outcome = match entry.outcome {
        AuditOutcome::Succeeded => "",
        AuditOutcome::Denied => ": denied",
        AuditOutcome::Failed => ": failed",
    };
    let by = match entry.actor.name.as_str() {
        "" => String::new(),
        name => format!("by {name}"),
    };
    Happening {
        at: entry.at,
        what: format!("{what}{outcome}"),
        detail: by,
        action: "",
        is_bad: entry.outcome != AuditOutcome::Succeeded,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        ui::sample,
        view::{Ended, Stage, StageState},
    };

    fn at(ms: i64) -> WireTime {
        WireTime::from_unix_ms(ms).unwrap()
    }

    fn detail(state: &str) -> SandboxDetail {
        let mut sandbox = sample::row("a", state).sandbox;
        sandbox.status.last_transition_at = Some(at(9_000));
        let stage = |name: &str, ms| Stage {
            name: name.to_owned(),
            state: StageState::Done,
            at: Some(at(ms)),
        };
        SandboxDetail {
            sandbox,
            stages: vec![stage("accepted", 0), stage("ready", 1_500)],
            resources: Default::default(),
            template: None,
            log_tail: Vec::new(),
            ended: None,
        }
    }

    fn entry(ms: i64, action: &str, outcome: &str) -> AuditEntry {
        let entry = json!({
            "id": "1", "at": at(ms), "action": action, "outcome": outcome,
            "actor": { "kind": "user", "id": "u", "name": "zoe" },
            "object": { "kind": "sandbox", "id": "a" }, "count": 1,
        });
        serde_json::from_value(entry).unwrap()
    }

    fn words(all: &[Happening]) -> Vec<String> {
        all.iter()
            .map(|it| format!("{} {}", it.what, it.detail).trim().to_owned())
            .collect()
    }

    #[test]
    fn without_the_trail_the_record_has_the_life() {
        let failed = latest(&detail("Failed"), &[]);
        assert_eq!(
            words(&failed),
            ["Failed", "Started Ready after 1.50 s", "Created"]
        );
        assert!(failed[0].is_bad && !failed[1].is_bad);
        let running = latest(&detail("Running"), &[]);
        assert_eq!(words(&running), ["Started Ready after 1.50 s", "Created"]);
        let mut gone = detail("Terminated");
        gone.ended = Some(Ended {
            outcome: Outcome::Expired,
            at: at(10_000),
        });
        assert_eq!(words(&latest(&gone, &[]))[0], "Expired");
    }

    #[test]
    fn what_the_trail_has_is_listed_once_with_its_actor() {
        let trail = [
            entry(9_001, "sandbox.pause", "succeeded"),
            entry(5_000, "sandbox.renew", "denied"),
            entry(1_600, "sandbox.create", "succeeded"),
        ];
        let wanted = [
            "Paused by zoe",
            "Extended: denied by zoe",
            "Started Ready after 1.50 s",
            "Created by zoe",
        ];
        assert_eq!(words(&latest(&detail("Paused"), &trail)), wanted);
    }

    #[test]
    fn there_are_ten_at_most_and_the_newest_first() {
        let trail: Vec<_> = (0..30)
            .map(|n| entry(20_000 + n, "sandbox.renew", "succeeded"))
            .collect();
        let shown = latest(&detail("Running"), &trail);
        assert_eq!(shown.len(), SHOWN);
        assert_eq!(shown[0].at, at(20_029));
    }
}
