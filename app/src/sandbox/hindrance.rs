//! Why an action on a sandbox is not possible now, in words for its button.

use osb_protocol::lifecycle::SandboxState::{
    self, Failed, Paused, Pausing, Pending, Resuming, Running, Stopping, Terminated,
};

use crate::view::{LOOKS_ONLY, SandboxDetail, is_alive};

/// An action of a sandbox's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Opens a terminal.
    Terminal,
    /// Moves the expiry.
    Renew,
    /// Freezes it, or thaws it.
    Pause,
    /// Keeps its files as they are now.
    Snapshot,
    /// Opens a form for another one like it.
    Clone,
    /// Deletes it.
    Delete,
}

/// What decides besides the state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    /// Whether the role of the user allows changes.
    pub(super) may_change: bool,
    /// Whether the sandbox is gone.
    pub(super) is_gone: bool,
    /// Whether the runtime has snapshots.
    pub(super) has_snapshots: bool,
}

/// Why an action is not possible; `None` if it is.
pub(super) fn hindrance(
    act: Act,
    detail: &SandboxDetail,
    Situation {
        may_change,
        is_gone,
        has_snapshots,
    }: Situation,
) -> Option<&'static str> {
    if !may_change {
        return Some(LOOKS_ONLY);
    }
    // The server remembers what a sandbox was created with.
    if act == Act::Clone {
        return None;
    }
    if act == Act::Snapshot && !has_snapshots {
        return Some("The runtime of this server has no snapshots.");
    }
    if is_gone {
        return Some("This sandbox is gone.");
    }
    let state = &detail.sandbox.status.state;
    match act {
        Act::Terminal | Act::Snapshot => not_running(state),
        Act::Renew if !is_alive(state) => Some(over(state)),
        Act::Renew if detail.sandbox.expires_at.is_none() => {
            Some("It has no expiry: it stays until it is deleted.")
        }
        Act::Renew => None,
        Act::Pause => no_pause(state),
        Act::Delete if *state == Stopping => Some("It is being deleted already."),
        Act::Clone | Act::Delete => None,
    }
}

/// Why something that needs a sandbox that runs is not possible.
fn not_running(state: &SandboxState) -> Option<&'static str> {
    match state {
        Running => None,
        Pending => Some("It is still being created."),
        Paused | Pausing => Some("It is paused: resume it first."),
        Resuming => Some("It is being resumed."),
        Failed | Stopping | Terminated => Some(over(state)),
        _ => Some("It is not known to run."),
    }
}

fn no_pause(state: &SandboxState) -> Option<&'static str> {
    match state {
        Running | Paused => None,
        Pending => Some("It is still being created."),
        Pausing => Some("It is being paused."),
        Resuming => Some("It is being resumed."),
        Failed | Stopping | Terminated => Some(over(state)),
        _ => Some("It is not known to run."),
    }
}

/// Why a sandbox that does not live any more can do nothing.
fn over(state: &SandboxState) -> &'static str {
    match state {
        Stopping => "It is being deleted.",
        Failed => "It failed and does not run any more.",
        _ => "It ended and does not run any more.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::sample;

    const ALL: [Act; 6] = [
        Act::Terminal,
        Act::Renew,
        Act::Pause,
        Act::Snapshot,
        Act::Clone,
        Act::Delete,
    ];
    const FREE: Situation = Situation {
        may_change: true,
        is_gone: false,
        has_snapshots: true,
    };

    fn detail(state: &str) -> SandboxDetail {
        let mut sandbox = sample::row("a", state).sandbox;
        sandbox.expires_at = Some(sandbox.created_at);
        SandboxDetail {
            sandbox,
            stages: Vec::new(),
            resources: Default::default(),
            template: None,
            log_tail: Vec::new(),
            ended: None,
        }
    }

    fn possible(state: &str) -> Vec<Act> {
        let detail = detail(state);
        let is_free = |act: &Act| hindrance(*act, &detail, FREE).is_none();
        ALL.into_iter().filter(is_free).collect()
    }

    #[test]
    fn a_state_allows_what_makes_sense_in_it() {
        use Act::{Clone, Delete, Pause, Renew, Snapshot, Terminal};
        assert_eq!(
            possible("Running"),
            [Terminal, Renew, Pause, Snapshot, Clone, Delete]
        );
        assert_eq!(possible("Paused"), [Renew, Pause, Clone, Delete]);
        assert_eq!(possible("Pending"), [Renew, Clone, Delete]);
        assert_eq!(possible("Failed"), [Clone, Delete]);
        assert_eq!(possible("Terminated"), [Clone, Delete]);
        assert_eq!(possible("Stopping"), [Clone]);
        assert_eq!(possible("Unknown"), [Renew, Clone, Delete]);
    }

    #[test]
    fn a_role_forbids_everything_and_an_end_all_but_a_copy_with_a_reason() {
        let running = detail("Running");
        for act in ALL {
            let viewer = Situation {
                may_change: false,
                ..FREE
            };
            let why = hindrance(act, &running, viewer).unwrap();
            assert!(why.contains("role"), "{why}");
            let gone = Situation {
                is_gone: true,
                ..FREE
            };
            let why = hindrance(act, &running, gone).unwrap_or("free");
            let part = if act == Act::Clone { "free" } else { "gone" };
            assert!(why.contains(part), "{act:?}: {why}");
        }
    }

    #[test]
    fn a_runtime_without_snapshots_says_so_in_every_state() {
        let without = Situation {
            has_snapshots: false,
            ..FREE
        };
        for state in ["Running", "Paused", "Failed"] {
            let why = hindrance(Act::Snapshot, &detail(state), without).unwrap();
            assert!(why.contains("has no snapshots"), "{state}: {why}");
            let pause = hindrance(Act::Pause, &detail(state), without);
            assert_eq!(pause, hindrance(Act::Pause, &detail(state), FREE));
        }
    }

    #[test]
    fn what_never_expires_is_not_renewed() {
        let mut detail = detail("Running");
        detail.sandbox.expires_at = None;
        let why = hindrance(Act::Renew, &detail, FREE).unwrap();
        assert!(why.contains("no expiry"), "{why}");
    }
}
