//! Why a sandbox is as it is, in words, with what helps.

use leptos::prelude::*;
use osb_protocol::{WireTime, lifecycle::SandboxState};

use crate::{
    ui::{Age, AtMinute},
    view::{Outcome, SandboxDetail},
};

/// Since when the state has lasted.
#[component]
pub(crate) fn Since(at: Signal<Option<WireTime>>) -> impl IntoView {
    move || {
        let at = at.get()?;
        Some(view! { " since " <AtMinute at /> " (" <Age at /> ")" })
    }
}

/// The reason and message of the state, with advice.
#[component]
pub(crate) fn Reason(current: RwSignal<SandboxDetail>) -> impl IntoView {
    let status = move || current.read().sandbox.status.clone();
    let advice = move || advice(&current.read());
    let since = Signal::derive(move || status().last_transition_at);
    let plain = Memo::new(move |_| plain(&current.read()));
    let message = move || status().message.filter(|_| plain.get().is_none());
    view! {
        <p>{move || plain.get()}</p>
        <p class="reason">
            <span class="mono">{move || status().reason.unwrap_or_else(|| status().state.to_string())}</span>
            <Since at=since />
        </p>
        <p>{message}</p>
        <p class="help">{advice}</p>
    }
    .into_any()
}

/// The last output of a sandbox that failed.
#[component]
pub(super) fn LastOutput(current: RwSignal<SandboxDetail>) -> impl IntoView {
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

/// The state in plain words, where its reason and message leave the question what it means.
fn plain(detail: &SandboxDetail) -> Option<&'static str> {
    // The page says how a sandbox ended.
    if detail.ended.is_some() {
        return None;
    }
    let words = match detail.sandbox.status.state {
        SandboxState::Pending => "It is being created: the stages show how far it is.",
        SandboxState::Running => "It runs, and clients can use it.",
        SandboxState::Paused => {
            "Its processes stand still and answer nothing. The time until it expires goes on."
        }
        SandboxState::Stopping => "It is being deleted.",
        _ => return None,
    };
    Some(words)
}

/// A suggested fix for the present state, or for the failure that ended the sandbox.
fn advice(detail: &SandboxDetail) -> Option<&'static str> {
    let status = &detail.sandbox.status;
    let reason = status.reason.as_deref().unwrap_or_default();
    let message = status.message.as_deref().unwrap_or_default();
    match detail.ended.map(|ended| ended.outcome) {
        Some(Outcome::Deleted | Outcome::Expired) => return None,
        Some(Outcome::Abandoned) => {
            return Some(
                "Give the client more time to wait for the answer, or create it again with Clone.",
            );
        }
        Some(Outcome::Vanished) => {
            return Some(
                "Look for a program on the host that prunes containers, such as a scheduled docker system prune.",
            );
        }
        Some(Outcome::Failed) | None => {}
    }
    match status.state {
        SandboxState::Failed if reason.contains("IMAGE") => Some(
            "Check the image name and whether this host may pull it: try docker pull with the same name.",
        ),
        SandboxState::Failed if detail.ended.is_some() => {
            Some("Clone fills the create form in with its request, to try again.")
        }
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
        SandboxState::Paused => Some("Resume continues its processes where they were."),
        SandboxState::Terminated => Some(
            "To keep a sandbox, use an entry point that does not exit, such as tail -f /dev/null.",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ui::sample, view::Ended};

    fn detail(state: &str, reason: &str, outcome: Option<Outcome>) -> SandboxDetail {
        let mut sandbox = sample::row("a", state).sandbox;
        sandbox.status.reason = Some(reason.to_owned());
        SandboxDetail {
            sandbox,
            stages: Vec::new(),
            resources: Default::default(),
            template: None,
            log_tail: Vec::new(),
            ended: outcome.map(|outcome| Ended {
                outcome,
                at: WireTime::from_unix_ms(0).unwrap(),
            }),
        }
    }

    #[test]
    fn a_failure_keeps_its_advice_after_the_end() {
        let pull = "IMAGE_PULL_FAILED";
        let now = advice(&detail("Failed", pull, None)).unwrap();
        let gone = advice(&detail("Failed", pull, Some(Outcome::Failed))).unwrap();
        assert_eq!(now, gone);
        for outcome in [Outcome::Failed, Outcome::Vanished, Outcome::Abandoned] {
            let advice = advice(&detail("Failed", "OTHER", Some(outcome)));
            assert!(advice.is_some(), "{outcome:?}");
        }
        for outcome in [Outcome::Deleted, Outcome::Expired] {
            let advice = advice(&detail("Terminated", "", Some(outcome)));
            assert_eq!(advice, None, "{outcome:?}");
        }
    }

    #[test]
    fn each_state_is_said_in_plain_words() {
        for state in ["Pending", "Running", "Paused", "Stopping"] {
            assert!(plain(&detail(state, "", None)).is_some(), "{state}");
        }
        // The message says what is wrong with these.
        for state in ["Failed", "Terminated", "Unknown"] {
            assert_eq!(plain(&detail(state, "", None)), None, "{state}");
        }
    }
}
