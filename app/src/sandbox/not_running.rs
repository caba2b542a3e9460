//! What a tab shows of a sandbox that does not run: why, and what helps.

use leptos::{ev, prelude::*, task::spawn_local};
use osb_protocol::{Feature, SandboxId, lifecycle::SandboxState};

use super::api;
use crate::{
    frame::Toasts,
    tab::Tab,
    ui::Icon,
    view::{SandboxDetail, ServerInfo, is_alive, offers_changes},
};

/// Why a tab shows nothing, or nothing new, with a way to resume or to the logs.
#[component]
pub(super) fn NotRunning(
    /// The tab.
    tab: Tab,
    /// The sandbox.
    current: RwSignal<SandboxDetail>,
) -> impl IntoView {
    let id = current.with_untracked(|detail| detail.sandbox.id.clone());
    let features = use_context::<ServerInfo>().unwrap_or_default().features;
    let state = Memo::new(move |_| current.read().sandbox.status.state.clone());
    let has_ended = Memo::new(move |_| has_ended(&current.read()));
    let why = move || {
        let detail = current.read();
        let why = detail.sandbox.status.message.clone();
        why.filter(|why| !why.trim().is_empty() && has_ended.get())
    };
    let logs = Tab::Logs
        .is_offered(features)
        .then(|| Tab::Logs.address(&id));
    let can_resume = features.contains(Feature::Pause) && offers_changes();
    view! {
        <section class="empty not-running">
            <Icon name=tab.icon() />
            <p role="status">{move || words(tab, &current.read())}</p>
            {move || why().map(|why| view! { <p class="reason">{why}</p> })}
            {move || {
                (can_resume && *state.read() == SandboxState::Paused)
                    .then(|| view! { <Resume id=id.clone() /> })
            }}
            {move || {
                let logs = logs.clone().filter(|_| has_ended.get());
                logs.map(|logs| view! { <a class="button" href=logs>"Logs"</a> })
            }}
        </section>
    }
    .into_any()
}

fn has_ended(detail: &SandboxDetail) -> bool {
    detail.ended.is_some() || !is_alive(&detail.sandbox.status.state)
}

/// Why a tab that needs a running sandbox shows nothing.
fn words(tab: Tab, detail: &SandboxDetail) -> String {
    use SandboxState::{Paused, Pausing, Pending, Resuming};
    // Some titles are singular, others plural.
    let title = format!("The {} tab", tab.title());
    if let Some(ended) = detail.ended {
        let why = ended.outcome.sentence();
        return match tab {
            Tab::Terminal => format!("{why} There is no new shell."),
            _ => format!("{why} {title} is unavailable."),
        };
    }
    match &detail.sandbox.status.state {
        state if !is_alive(state) => {
            format!("{title} is unavailable: the sandbox is not running ({state}).")
        }
        Pending => {
            format!("The sandbox is being created. {title} opens by itself once it runs.")
        }
        Paused | Pausing => {
            format!("The sandbox is paused. {title} continues where it was after a resume.")
        }
        Resuming => format!("The sandbox is being resumed. {title} opens by itself."),
        state => format!("{title} opens by itself once the sandbox runs (now {state})."),
    }
}

/// A button that resumes a paused sandbox.
#[component]
fn Resume(id: SandboxId) -> impl IntoView {
    let busy = RwSignal::new(false);
    let toasts = Toasts::current();
    let action = format!("/console/sandboxes/{id}/resume");
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let id = id.clone();
        busy.set(true);
        spawn_local(async move {
            if let Err(error) = api::resume(id).await {
                toasts.bad(error.to_string());
            }
            busy.try_set(false);
        });
    };
    view! {
        <form method="post" action=action on:submit=submit>
            <button type="submit" class="button" disabled=move || busy.get()>
                <Icon name="play" />
                "Resume"
            </button>
        </form>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;
    use crate::{
        ui::sample,
        view::{Ended, Outcome},
    };

    fn detail(state: &str) -> SandboxDetail {
        SandboxDetail {
            sandbox: sample::row("a", state).sandbox,
            stages: Vec::new(),
            resources: Default::default(),
            template: None,
            log_tail: Vec::new(),
            ended: None,
        }
    }

    #[test]
    fn each_state_says_what_comes_next() {
        for (state, part) in [
            ("Pending", "opens by itself"),
            ("Paused", "after a resume"),
            ("Failed", "not running (Failed)"),
            ("Terminated", "not running (Terminated)"),
            ("Unknown", "(now Unknown)"),
        ] {
            let words = words(Tab::Terminal, &detail(state));
            assert!(words.contains(part), "{state}: {words}");
        }
        let mut ended = detail("Running");
        ended.ended = Some(Ended {
            outcome: Outcome::Expired,
            at: WireTime::from_unix_ms(0).unwrap(),
        });
        assert!(has_ended(&ended));
        let words = words(Tab::Terminal, &ended);
        assert!(words.starts_with("This sandbox expired."), "{words}");
    }

    #[test]
    fn the_words_fit_titles_of_every_number() {
        for (tab, state, expected) in [
            (
                Tab::Files,
                "Paused",
                "The sandbox is paused. The Files tab continues where it was after a resume.",
            ),
            (
                Tab::Files,
                "Resuming",
                "The sandbox is being resumed. The Files tab opens by itself.",
            ),
            (
                Tab::Preview,
                "Failed",
                "The Preview tab is unavailable: the sandbox is not running (Failed).",
            ),
            (
                Tab::Terminal,
                "Pending",
                "The sandbox is being created. The Terminal tab opens by itself once it runs.",
            ),
        ] {
            assert_eq!(words(tab, &detail(state)), expected);
        }
    }

    #[test]
    fn only_ended_sandboxes_have_ended() {
        for state in ["Pending", "Running", "Paused", "Unknown"] {
            assert!(!has_ended(&detail(state)), "{state}");
        }
        assert!(has_ended(&detail("Failed")));
    }
}
